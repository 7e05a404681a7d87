// `escrow run --retry`: what meets a conflict is done again over the new head.
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>

#include "tests/mount/run_fixture.h"

namespace escrow::test {
namespace {

class RunRetry : public EscrowRun {
 protected:
  // A script that notes each try, and lets somebody else append to a.txt first in each of the first `conflicts` tries.
  std::string script(int conflicts, const std::string& work) const {
    const std::string tries = "'" + file("tries") + "'", escrow = "'" ESCROW_BINARY "'";
    return "set -e; echo try >> " + tries + "; cat a.txt > /dev/null\n"
           "if [ $(wc -l < " + tries + ") -le " + std::to_string(conflicts) + " ]; then (cd /; " + escrow +
           " --repo '" + repository_ + "' run -- sh -c 'echo theirs >> a.txt') 2> '" + file("theirs.log") +
           "'; fi\n" + work;
  }
  long tries() const {
    const std::string noted = read("tries");
    return std::count(noted.begin(), noted.end(), '\n');
  }
  std::string results() const { return git("for-each-ref --format='%(refname)' refs/sessions refs/escrow"); }
};

constexpr const char* kAppend = "echo ours >> a.txt";

TEST_F(RunRetry, AConflictIsMetAgainOnTheNewHeadAndNothingIsLost) {
  const ProcessResult result = run({"--retry", "3", "-m", "ours"}, script(2, kAppend));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(tries(), 3);
  EXPECT_EQ(content("a.txt"), "a\ntheirs\ntheirs\nours");
  EXPECT_EQ(git("log -1 --format=%s main"), "ours");
  EXPECT_EQ(results(), "") << "of the tries before nothing is kept";
  EXPECT_NE(result.err.find("1 path conflicts with what others committed to main meanwhile: a.txt; the command is run "
                            "again, and may be 2 times more"),
            std::string::npos)
      << result.err;
  EXPECT_NE(escrow({"audit"}).out.find("conflict"), std::string::npos);
  EXPECT_TRUE(no_mount_left());
}

TEST_F(RunRetry, TheLastTryEndsAsARunWithoutRetriesDoes) {
  const ProcessResult result = run({"--retry", "2", "--result", file("result.json")}, script(9, kAppend));
  EXPECT_EQ(result.status, 122) << result.err;
  EXPECT_EQ(tries(), 3);
  EXPECT_NE(read("result.json").find("\"state\":\"commit_failed\""), std::string::npos) << read("result.json");
  const std::string kept = results();
  EXPECT_TRUE(kept.starts_with("refs/sessions/") && kept.find('\n') == std::string::npos) << kept;
}

TEST_F(RunRetry, OtherEndsAreEnds) {
  long expected = 0;
  for (const auto& [work, status] : std::vector<std::pair<std::string, int>>{
           {"exit 3", 3}, {"exit 122", 122}, {"kill -KILL $$", 137}, {"true", 0}, {"echo new > new", 0}}) {
    EXPECT_EQ(run({"--retry", "5"}, script(0, work)).status, status) << work;
    EXPECT_EQ(tries(), ++expected) << work;
  }
  EXPECT_EQ(escrow({"run", "--retry", "5", "--", "no-such-program"}).status, 127);
  EXPECT_EQ(run({"--retry", "5", "--path-prefix", "a.txt"}, "true").status, 125);
}

TEST_F(RunRetry, ASignalToItCancelsTheTryUnderWay) {
  BackgroundRun running(
      run_command_line({"--retry", "5", "--grace", "1s"}, script(0, kAppend + std::string("; sleep 600"))),
      file("err"));
  ASSERT_TRUE(eventually([&] { return has("tries"); }));
  ::kill(running.pid(), SIGTERM);
  EXPECT_EQ(running.wait(), 128 + SIGTERM) << read("err");
  EXPECT_EQ(content("a.txt"), "a");
  EXPECT_TRUE(no_mount_left());
}

// Whether it comes in time for the try or not.
TEST_F(RunRetry, ASignalWhileATryEndsCancelsThoseAfterIt) {
  const std::string pid = file("pid");
  const std::string kill = "; while ! [ -s '" + pid + "' ]; do sleep 0.01; done; kill -TERM $(cat '" + pid + "')";
  BackgroundRun running(run_command_line({"--retry", "5"}, script(9, kAppend + kill)), file("err"));
  ASSERT_TRUE(eventually([&] { return has("tries"); }));
  std::ofstream(pid + ".new") << running.pid();
  ASSERT_EQ(::rename((pid + ".new").c_str(), pid.c_str()), 0);
  EXPECT_EQ(running.wait(), 128 + SIGTERM) << read("err");
  EXPECT_EQ(tries(), 1);
  EXPECT_EQ(content("a.txt"), "a\ntheirs");
  EXPECT_EQ(results(), "");
}

TEST_F(RunRetry, EachTryReadsTheSameFileAsItsStandardInput) {
  std::ofstream(file("words")) << "skipped\nfirst\nsecond\n";
  std::vector<std::string> words = {"sh", "-c", "exec < '" + file("words") + "'; read line; exec \"$@\"", "sh"};
  for (const std::string& word : run_command_line({"--retry", "3"}, script(2, "cat > input; " + std::string(kAppend))))
    words.push_back(word);
  const ProcessResult result =
      run_process(words, {.directory = directory_.path(), .environment = {}, .input = {}});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(tries(), 3);
  EXPECT_EQ(content("input"), "first\nsecond");
}

TEST_F(RunRetry, WhenItIsKilledTheTryUnderWayIsCancelled) {
  {
    BackgroundRun running(
        run_command_line({"--retry", "5", "--grace", "1s"}, script(0, kAppend + std::string("; sleep 600"))),
        file("err"));
    ASSERT_TRUE(eventually([&] { return has("tries"); }));
    ::kill(running.pid(), SIGKILL);
    running.wait();
  }
  EXPECT_TRUE(eventually([&] { return no_mount_left(); }));
  EXPECT_TRUE(eventually([&] { return escrow({"audit"}).out.find("rolled_back") != std::string::npos; }));
  EXPECT_EQ(content("a.txt"), "a");
}

TEST_F(RunRetry, BadValuesAreRefused) {
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {"--retry", "-1"}, {"--retry", "1001"}, {"--retry", "x"}, {"--retry", "1", "--retry-backoff", "soon"}}) {
    const ProcessResult result = run(options, script(0, kAppend));
    EXPECT_NE(result.status, 0);
    EXPECT_NE(result.err.find("--retry"), std::string::npos) << result.err;
    EXPECT_FALSE(has("tries"));
  }
}

}  // namespace
}  // namespace escrow::test
