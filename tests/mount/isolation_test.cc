// `--isolation serializable`: what a command read, listed or did not find must not have changed by its commit.
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/mount/run_fixture.h"

namespace escrow::test {
namespace {

using Options = std::vector<std::string>;

class Isolation : public EscrowRun, public testing::WithParamInterface<Options> {
 protected:
  // A run that does `seen`, lets another one do and commit `theirs`, and writes a file of its own.
  ProcessResult meet(const std::string& seen, const std::string& theirs, const Options& more = {}) {
    Options options = GetParam();
    options.insert(options.end(), {"--isolation", "serializable"});
    options.insert(options.end(), more.begin(), more.end());
    return run(options, seen + "\n(cd /; '" ESCROW_BINARY "' --repo '" + repository_ + "' run -- sh -c '" + theirs +
                            "') 2> '" + file("theirs.log") + "'\necho own > own");
  }
};

// The second session read what the first writes, and the other way round: no order of the two explains both.
TEST_P(Isolation, WriteSkewIsMet) {
  const ProcessResult result = meet("cat a.txt > dir/b.txt", "cat dir/b.txt > a.txt");
  EXPECT_EQ(result.status, 122) << result.err;
  EXPECT_NE(result.err.find("a.txt"), std::string::npos) << result.err;
  EXPECT_EQ(content("dir/b.txt"), "b");
  EXPECT_TRUE(no_mount_left());
}

TEST_P(Isolation, WhateverWasSeenAndChangedIsNamed) {
  ASSERT_EQ(run("ln -s a.txt link; cp /bin/true program; mkdir many; echo 1 > many/1").status, 0);
  int round = 0;
  const auto next = [&round] { return std::to_string(++round); };
  for (const auto& [seen, theirs, path] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"cat a.txt > /dev/null", "echo other" + next() + " > a.txt", "a.txt"},
           {"stat a.txt > /dev/null", "echo other" + next() + " > a.txt", "a.txt"},
           {"python3 -c \"import mmap; f = open('a.txt'); mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[0]\"",
            "echo other" + next() + " > a.txt", "a.txt"},
           {"readlink link > /dev/null", "ln -sfn dir link", "link"},
           {"./program", "echo >> program", "program"},
           {"ls many > /dev/null", "echo 2 > many/2", "many/2"},
           {"ls many > /dev/null", "rm many/2", "many/2"},
           {"test ! -e many/absent", "echo 3 > many/absent", "many/absent"},
           {"rm -r many", "echo 4 > many/4", "many/4"},
           {"mv dir moved; cat moved/sub/c.txt > /dev/null; mv moved dir", "echo c2 > dir/sub/c.txt",
            "dir/sub/c.txt"}}) {
    const ProcessResult result = meet(seen, theirs);
    EXPECT_EQ(result.status, 122) << seen << "\n" << result.err << read("theirs.log");
    EXPECT_NE(result.err.find(": " + path), std::string::npos) << seen << "\n" << result.err;
  }
}

TEST_P(Isolation, WhatWasNotSeenIsNobodysBusiness) {
  const ProcessResult result = meet("cat a.txt > /dev/null; test ! -e absent", "echo other > dir/b.txt; echo > new");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(content("dir/b.txt"), "other");
  EXPECT_EQ(content("own"), "own");
  EXPECT_NE(git("log -1 --format=%B main").find("Escrow-Reads: sha256:"), std::string::npos);
}

TEST_P(Isolation, ARetryReadsTheNewHead) {
  const ProcessResult result =
      meet("cat a.txt > copy; test -e '" + file("once") + "' && exit 0; touch '" + file("once") + "'",
           "echo other > a.txt", {"--retry", "1"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(content("copy"), "other");
}

INSTANTIATE_TEST_SUITE_P(Every, Isolation,
                         testing::Values(Options{}, Options{"--opens", "daemon"}, Options{"--io", "writeback"},
                                         Options{"--io", "passthrough"}));
INSTANTIATE_TEST_SUITE_P(WithoutIoUring, Isolation, testing::Values(Options{"--io-uring", "off"}));

class SnapshotIsolation : public EscrowRun {};

TEST_F(SnapshotIsolation, ReadsDoNotMatterUnlessAskedFor) {
  const ProcessResult result =
      run("cat a.txt > /dev/null; ls > /dev/null\n(cd /; '" ESCROW_BINARY "' --repo '" + repository_ +
          "' run -- sh -c 'echo other > a.txt') 2> /dev/null\necho own > own");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(git("log -1 --format=%B main").find("Escrow-Reads"), std::string::npos);
}

}  // namespace
}  // namespace escrow::test
