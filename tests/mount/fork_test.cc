// Forks of mounted sessions on the real kernel: from the moment that a fork begins to its commit into the session.
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "tests/mount/cli_fixture.h"

namespace escrow::test {
namespace {

namespace fs = std::filesystem;

class Fork : public EscrowCommands, public testing::WithParamInterface<std::vector<std::string>> {
 protected:
  void SetUp() override {
    EscrowCommands::SetUp();
    fs::create_directory(file("fork"));
  }
  void TearDown() override {
    ::system(("umount -q '" + file("fork") + "' 2>/dev/null").c_str());
    EscrowCommands::TearDown();
  }
  std::string in_fork(const std::string& name) const { return file("fork") + "/" + name; }
  // Mounted beside its parent.
  std::string fork(const std::string& parent) const { return done({"fork", parent, file("fork")}); }
};

TEST_P(Fork, BeginsAsTheSessionIsAndThenTheyDiverge) {
  const std::string parent = mount(GetParam());
  const std::string large(300'000, 'n');
  write(in_mount("a.txt"), "of the session");
  write(in_mount("large"), large);
  fs::create_directory(in_mount("empty"));
  ASSERT_EQ(::chmod(in_mount("dir/b.txt").c_str(), 0640), 0);
  fs::create_hard_link(in_mount("a.txt"), in_mount("second"));
  fs::remove(in_mount("dir/sub/c.txt"));
  fork(parent);
  EXPECT_EQ(read(in_fork("a.txt")), "of the session");
  EXPECT_EQ(read(in_fork("large")), large);
  EXPECT_TRUE(fs::is_directory(in_fork("empty")));
  EXPECT_EQ(fs::status(in_fork("dir/b.txt")).permissions(), fs::perms(0640));
  EXPECT_EQ(fs::hard_link_count(in_fork("second")), 2u);
  EXPECT_FALSE(fs::exists(in_fork("dir/sub/c.txt")));

  write(in_mount("a.txt"), "changed by the session");
  ASSERT_EQ(::truncate(in_mount("large").c_str(), 7), 0);
  write(in_fork("second"), "changed by the fork");
  EXPECT_EQ(read(in_fork("a.txt")), "changed by the fork");
  EXPECT_EQ(read(in_fork("large")), large);
  EXPECT_EQ(read(in_mount("second")), "changed by the session");
}

TEST_P(Fork, ItsCommitShowsInTheSessionsMountAndNotInTheBranch) {
  const std::string before = head(), parent = mount(GetParam());
  write(in_mount("a.txt"), "of the session");
  const std::string child = fork(parent);
  EXPECT_EQ(read(in_mount("a.txt")), "of the session") << "the kernel has it in its cache";
  write(in_fork("a.txt"), "of the fork, and longer than it was");
  write(in_fork("dir/new"), "made by the fork");
  fs::create_directory(in_fork("hollow"));
  fs::remove(in_fork("dir/b.txt"));
  write(in_mount("meanwhile"), "of the session");
  EXPECT_EQ(done({"diff", child, "--name-status"}), "D\tdir/b.txt\nM\ta.txt\nA\tdir/new");
  refused(1, child, {"commit", parent});
  done({"commit", child});
  EXPECT_EQ(read(in_mount("a.txt")), "of the fork, and longer than it was");
  EXPECT_EQ(read(in_mount("dir/new")), "made by the fork");
  EXPECT_TRUE(fs::is_directory(in_mount("hollow")));
  EXPECT_FALSE(fs::exists(in_mount("dir/b.txt")));
  EXPECT_EQ(read(in_mount("meanwhile")), "of the session");
  EXPECT_EQ(head(), before);
  EXPECT_FALSE(fs::exists(repository_ + "/escrow/sessions/" + child));
  done({"commit", parent});
  EXPECT_EQ(content("a.txt"), "of the fork, and longer than it was");
  EXPECT_EQ(content("dir/new"), "made by the fork");
  EXPECT_EQ(content("meanwhile"), "of the session");
}

TEST_P(Fork, WhatBothChangedIsNamedAndNothingHasChanged) {
  const std::string parent = mount(GetParam());
  const std::string child = fork(parent);
  write(in_fork("a.txt"), "of the fork");
  write(in_fork("new"), "of the fork");
  write(in_mount("a.txt"), "of the session");
  const ProcessResult result = escrow({"commit", child, "--json"});
  EXPECT_EQ(result.status, 122);
  EXPECT_NE(result.out.find("a.txt"), std::string::npos) << result.out;
  EXPECT_EQ(read(in_mount("a.txt")), "of the session");
  EXPECT_FALSE(fs::exists(in_mount("new")));
  EXPECT_EQ(read(in_fork("a.txt")), "of the fork") << "it is still mounted";
  write(in_fork("a.txt"), "of the session");
  done({"commit", child});
  EXPECT_EQ(read(in_mount("new")), "of the fork");
}

TEST_P(Fork, ItsRollbackLeavesTheSessionAsItIs) {
  const std::string parent = mount(GetParam());
  write(in_mount("a.txt"), "of the session");
  const std::string child = fork(parent);
  write(in_fork("a.txt"), "of the fork");
  fs::remove_all(in_fork("dir"));
  done({"rollback", child});
  EXPECT_EQ(read(in_mount("a.txt")), "of the session");
  EXPECT_TRUE(fs::exists(in_mount("dir/sub/c.txt")));
  done({"commit", parent});
  EXPECT_EQ(content("a.txt"), "of the session");
}

TEST_P(Fork, OneOfSeveralIsAdoptedAndTheOthersAreRolledBack) {
  const std::string parent = mount(GetParam());
  std::vector<std::string> forks;
  for (int number = 0; number < 3; ++number) {
    forks.push_back(fork(parent));
    write(in_fork("a.txt"), "try " + std::to_string(number));
    done({"unmount", file("fork")});
  }
  done({"adopt", forks[1]});
  EXPECT_EQ(read(in_mount("a.txt")), "try 1");
  for (const int other : {0, 2}) EXPECT_EQ(status_of(forks[static_cast<std::size_t>(other)], "state"), "rolled_back");
  done({"commit", parent});
  EXPECT_EQ(content("a.txt"), "try 1");
}

TEST_P(Fork, ASessionEndsWithItsForksWhenItIsToldTo) {
  const std::string parent = mount(GetParam());
  const std::string child = fork(parent), inner = done({"fork", child});
  write(in_mount("a.txt"), "of the session");
  refused(1, child, {"rollback", parent});
  done({"commit", parent, "--discard-forks"});
  EXPECT_EQ(status_of(child, "state"), "rolled_back");
  EXPECT_EQ(status_of(inner, "state"), "rolled_back");
  EXPECT_EQ(content("a.txt"), "of the session");
}

INSTANTIATE_TEST_SUITE_P(Every, Fork,
                         testing::Values(std::vector<std::string>{"--io", "cached"},
                                         std::vector<std::string>{"--io", "cached", "--opens", "daemon"},
                                         std::vector<std::string>{"--io", "passthrough"}));

using ForkMerge = EscrowCommands;

TEST_F(ForkMerge, TakesLinesModesAndSubmodulesFromWhereTheyWereChanged) {
  done({"run", "--", "sh", "-c", "seq 9 > lines"});
  shell("git config escrow.merge text; sub=$(printf '160000 commit %040d\tsub\n' 7 | git mktree --missing); "
        "tree=$( { git ls-tree main; printf '040000 tree %s\tmodules\n' $sub; } | git mktree); "
        "git update-ref refs/heads/main $(git commit-tree $tree -p main -m 'a submodule')",
        {.directory = repository_, .environment = {}, .input = {}});
  const std::string parent = mount(), child = done({"fork", parent});
  shell("chmod +x lines; sed -i 1s/.*/first/ lines; chmod 600 a.txt; echo 1 > new",
        {.directory = mountpoint_, .environment = {}, .input = {}});
  fs::create_directory(file("fork"));
  done({"mount", file("fork"), "--session", child});
  shell("sed -i 9s/.*/last/ lines; mv modules moved; echo more >> a.txt",
        {.directory = file("fork"), .environment = {}, .input = {}});
  done({"commit", child});
  struct stat kept {};
  EXPECT_EQ(::stat(in_mount("a.txt").c_str(), &kept), 0);
  EXPECT_EQ(kept.st_mode & 07777u, 0600u);
  done({"commit", parent});
  EXPECT_EQ(content("lines"), "first\n2\n3\n4\n5\n6\n7\n8\nlast");
  EXPECT_EQ(git("ls-tree main lines").substr(0, 6), "100755");
  EXPECT_EQ(git("ls-tree -r main moved").substr(0, 6), "160000");
  EXPECT_EQ(git("ls-tree main modules"), "");
  EXPECT_EQ(content("a.txt"), "a\nmore");
}

class ForkOfARun : public EscrowCommands {};

TEST_F(ForkOfARun, EndsWithARunThatFails) {
  const std::string escrow_fork = "cd /; '" ESCROW_BINARY "' --repo '" + repository_ + "' fork ";
  const ProcessResult result = escrow({"run", "--", "sh", "-c", escrow_fork + "$ESCROW_SESSION > '" + file("id") +
                                                                    "'; " + escrow_fork + "$(cat '" + file("id") +
                                                                    "') > '" + file("inner") + "'; exit 3"});
  EXPECT_EQ(result.status, 3) << result.err;
  for (const char* name : {"id", "inner"}) {
    const std::string fork = read(file(name)).substr(0, 16);
    EXPECT_EQ(status_of(fork, "state"), "rolled_back") << result.err;
    EXPECT_NE(result.err.find(fork), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace escrow::test
