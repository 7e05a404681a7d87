// Who commits are by, what they are called, and words of the commands that said something else than what is.
#include <string>
#include <utility>
#include <vector>

#include "tests/mount/run_fixture.h"

namespace escrow::test {
namespace {

class EscrowAuthor : public EscrowRun {
 protected:
  using Environment = std::vector<std::pair<std::string, std::string>>;
  ProcessResult with(Environment environment, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--repo", repository_});
    environment.emplace_back("GIT_CONFIG_NOSYSTEM", "1");
    return run_escrow(arguments, {.directory = directory_.path(), .environment = std::move(environment), .input = {}});
  }
  std::string last(const std::string& format) { return git("log -1 '--format=" + format + "' main"); }
};

TEST_F(EscrowAuthor, CommitsAreByWhomGitNames) {
  shell("printf '[user]\\n name = Global Person\\n email = global@example.org\\n' > '" + file("global") + "'");
  const Environment none = {{"GIT_CONFIG_GLOBAL", "/dev/null"}}, global = {{"GIT_CONFIG_GLOBAL", file("global")}};
  ASSERT_EQ(with(none, {"run", "--", "touch", "1"}).status, 0);
  EXPECT_NE(last("%ae").find("@user.escrow.invalid"), std::string::npos) << last("%ae");
  ASSERT_EQ(with(global, {"run", "--", "touch", "2"}).status, 0);
  EXPECT_EQ(last("%an <%ae> %cn <%ce>"),
            "Global Person <global@example.org> Global Person <global@example.org>");
  EXPECT_NE(last("%(trailers:key=Escrow-Committer)").find("Escrow-Committer: user:"), std::string::npos);
  git("config user.name 'Of the Repository'");
  ASSERT_EQ(with(global, {"run", "--", "touch", "3"}).status, 0);
  EXPECT_EQ(last("%an <%ae>"), "Of the Repository <global@example.org>");
  Environment variables = global;
  variables.emplace_back("GIT_AUTHOR_NAME", "By Variable");
  variables.emplace_back("GIT_AUTHOR_EMAIL", "variable@example.org");
  ASSERT_EQ(with(variables, {"run", "--", "touch", "4"}).status, 0);
  EXPECT_EQ(last("%an <%ae>"), "By Variable <variable@example.org>");
  ASSERT_EQ(with(variables, {"run", "--committer", "agent:builder", "--", "touch", "5"}).status, 0);
  EXPECT_EQ(last("%an <%ae>"), "builder <builder@agent.escrow.invalid>");
  shell("echo imported > '" + file("in/new") + "'");
  ASSERT_EQ(with(global, {"import", file("in")}).status, 0);
  EXPECT_EQ(last("%an <%ae>"), "Of the Repository <global@example.org>");
}

TEST_F(EscrowAuthor, ASessionKeepsItsAuthorWhoeverCommitsIt) {
  shell("mkdir '" + file("mnt") + "'");
  const ProcessResult mounted =
      with({{"GIT_CONFIG_GLOBAL", "/dev/null"}, {"GIT_AUTHOR_NAME", "Opener"}, {"GIT_AUTHOR_EMAIL", "o@example.org"}},
           {"mount", file("mnt")});
  ASSERT_EQ(mounted.status, 0) << mounted.err;
  const std::string session = mounted.out.substr(0, 16);
  shell("echo new > '" + file("mnt/new") + "'");
  const ProcessResult committed = with({{"GIT_AUTHOR_NAME", "Other"}, {"GIT_AUTHOR_EMAIL", "x@example.org"}},
                                       {"commit", session});
  ASSERT_EQ(committed.status, 0) << committed.err;
  EXPECT_EQ(last("%an <%ae>"), "Opener <o@example.org>");
}

TEST_F(EscrowAuthor, TheDefaultSubjectNamesTheCommand) {
  ASSERT_EQ(escrow({"run", "--", "cp", "a.txt", "copy of a"}).status, 0);
  EXPECT_EQ(last("%s"), "run: cp a.txt 'copy of a'");
  EXPECT_EQ(last("%b").substr(0, 33), "1 added, 0 modified, 0 deleted in");
  ASSERT_EQ(escrow({"run", "-m", "mine", "--", "touch", "other"}).status, 0);
  EXPECT_EQ(last("%s"), "mine");
}

TEST_F(EscrowAuthor, WordsSayWhatIs) {
  const ProcessResult again = escrow({"init", "--branch", "dev"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_NE(again.out.find("--branch is for a repository that is made"), std::string::npos) << again.out;
  EXPECT_EQ(escrow({"init"}).out.find("--branch"), std::string::npos);

  shell("mkdir '" + file("mnt") + "' '" + file("nothing") + "'");
  const ProcessResult mounted = escrow({"mount", file("mnt")});
  ASSERT_EQ(mounted.status, 0) << mounted.err;
  const std::string session = mounted.out.substr(0, 16);
  EXPECT_NE(escrow({"status", session}).out.find("I/O:         cached, opens none (the default)"), std::string::npos)
      << escrow({"status", session}).out;
  const std::string head_before = head();
  git("update-ref -d refs/heads/main");
  EXPECT_NE(escrow({"status", session}).out.find("none, the branch was deleted"), std::string::npos);
  git("update-ref refs/heads/main " + head_before);
  EXPECT_EQ(escrow({"rollback", session}).status, 0);

  const ProcessResult imported = escrow({"import", file("nothing")});
  EXPECT_EQ(imported.status, 0) << imported.err;
  EXPECT_NE(imported.err.find("holds no file, so all 3 files of branch main are deleted"), std::string::npos)
      << imported.err;

  const ProcessResult sealed = escrow({"run", "--require-approval", "--", "touch", "new"});
  EXPECT_EQ(sealed.status, 123) << sealed.err;
  const std::string hint = "escrow approve ";
  const std::size_t at = sealed.err.find(hint);
  ASSERT_NE(at, std::string::npos) << sealed.err;
  EXPECT_EQ(shell(std::string(ESCROW_BINARY) + " --repo '" + repository_ + "' " +
                  sealed.err.substr(at + 7, sealed.err.find('`', at) - at - 7) + " > /dev/null; echo $?"),
            "0");
}

}  // namespace
}  // namespace escrow::test
