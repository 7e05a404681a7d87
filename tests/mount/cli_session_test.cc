// Sessions by hand: mount, edit, look, commit, roll back, from other processes than the one that hosts them.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "tests/mount/cli_fixture.h"

namespace escrow::test {
namespace {

using Commands = EscrowCommands;

TEST_F(Commands, AMountedSessionIsCommittedByAnotherProcessToTheLastByte) {
  const std::string id = mount();
  EXPECT_EQ(read(in_mount("dir/b.txt")), "b\n");
  const int fd = ::open(in_mount("new.txt").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
  ASSERT_EQ(::write(fd, "late", 4), 4);  // neither closed nor fsynced
  const std::string said = done({"commit", id.substr(0, 6), "-m", "by hand"});
  ::close(fd);
  EXPECT_NE(said.find(head()), std::string::npos) << said;
  EXPECT_EQ(content("new.txt"), "late");
  EXPECT_EQ(git("log -1 --format=%s main"), "by hand");
  EXPECT_FALSE(is_mounted());
  EXPECT_EQ(status_of(id, "state"), "committed");
  EXPECT_NE(git("log -1 --format=%B main").find("Escrow-Source: manual"), std::string::npos);
}

TEST_F(Commands, NothingIsSeenOutsideBeforeTheCommit) {
  const std::string before = head();
  const std::string id = mount();
  write(in_mount("a.txt"), "changed");
  EXPECT_EQ(content("a.txt"), "a");
  done({"rollback", id});
  EXPECT_EQ(head(), before);
  EXPECT_FALSE(is_mounted());
  EXPECT_EQ(status_of(id, "state"), "rolled_back");
  EXPECT_EQ(status_of(id, "reason"), "requested");
}

TEST_F(Commands, UmountLeavesTheSessionOpenAndDetached) {
  const std::string id = mount();
  write(in_mount("kept.txt"), "kept");
  unmount_outside(id);
  EXPECT_EQ(status_of(id, "state"), "open");
  EXPECT_EQ(mount({"--session", id}), id);
  EXPECT_EQ(read(in_mount("kept.txt")), "kept");
  done({"unmount", mountpoint_});
  EXPECT_FALSE(is_mounted());
  done({"commit", id});
  EXPECT_EQ(content("kept.txt"), "kept");
}

TEST_F(Commands, ABusyMountIsNotUnmountedAndItsHolderIsNamed) {
  const std::string id = mount();
  const int held = ::open(in_mount("a.txt").c_str(), O_RDONLY | O_CLOEXEC);
  refused(1, "in use", {"unmount", id});
  EXPECT_TRUE(is_mounted());
  ::close(held);
  done({"unmount", id});
}

TEST_F(Commands, StatusAndDiffShowWhatACommitWouldDo) {
  const std::string id = mount();
  write(in_mount("new.txt"), "one\ntwo\n");
  std::filesystem::remove(in_mount("a.txt"));
  ASSERT_EQ(::mkfifo(in_mount("pipe").c_str(), 0644), 0);
  EXPECT_EQ(status_of(id, "attachment"), "mounted");
  EXPECT_EQ(status_of(id, "added"), "1");
  EXPECT_EQ(status_of(id, "deleted"), "1");
  EXPECT_EQ(done({"diff", id, "--name-status"}), "D\ta.txt\nA\tnew.txt");
  EXPECT_NE(done({"diff", id}).find("+two"), std::string::npos);
  EXPECT_NE(done({"status", id}).find("pipe"), std::string::npos);
  const std::string mounted = done({"diff", id, "--stat"});
  unmount_outside(id);
  EXPECT_EQ(done({"diff", id, "--stat"}), mounted);
  EXPECT_EQ(done({"diff", id, "--name-status"}), "D\ta.txt\nA\tnew.txt");
}

TEST_F(Commands, AConflictLeavesTheSessionMountedAndWritable) {
  const std::string id = mount();
  write(in_mount("a.txt"), "mine");
  write(file("in/a.txt"), "theirs");
  write(file("in/more.txt"), "more");
  done({"import", file("in")});
  const ProcessResult first = escrow({"commit", id});
  EXPECT_EQ(first.status, 122) << first.err;
  EXPECT_NE(first.err.find("a.txt: the session modified it, the branch modified it"), std::string::npos) << first.err;
  EXPECT_TRUE(is_mounted());
  write(in_mount("later.txt"), "later");

  const ProcessResult updated = escrow({"update", id});
  EXPECT_EQ(updated.status, 122) << updated.err;
  EXPECT_FALSE(std::filesystem::exists(in_mount("more.txt"))) << "nothing is taken in";
  EXPECT_EQ(read(in_mount("a.txt")), "mine");
  done({"discard", id, "a.txt"});
  EXPECT_EQ(read(in_mount("a.txt")), "a\n");
  done({"update", id});
  EXPECT_EQ(read(in_mount("a.txt")), "theirs");
  done({"commit", id});
  EXPECT_EQ(content("a.txt"), "theirs");
  EXPECT_EQ(content("later.txt"), "later");
}

TEST_F(Commands, DiscardTakesPathsBackAndBringsDeletedOnesBack) {
  const std::string id = mount();
  write(in_mount("a.txt"), "changed");
  write(in_mount("dir/new.txt"), "new");
  std::filesystem::remove_all(in_mount("dir/sub"));
  refused(1, "nowhere", {"discard", id, "a.txt", "nowhere"});
  EXPECT_EQ(read(in_mount("a.txt")), "changed");
  done({"discard", id, "dir"});
  EXPECT_EQ(read(in_mount("dir/sub/c.txt")), "c\n");
  EXPECT_FALSE(std::filesystem::exists(in_mount("dir/new.txt")));
  EXPECT_EQ(done({"diff", id, "--name-status"}), "M\ta.txt");
  done({"rollback", id});
}

// The kernel keeps what it once listed, and has looked up none of the new names.
TEST_F(Commands, UpdateAndDiscardShowInListingsThatTheKernelKeeps) {
  const auto listed = [&](const std::string& directory) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(in_mount(directory)))
      names.insert(entry.path().filename());
    return names;
  };
  using Names = std::set<std::string>;
  const std::string id = mount();
  EXPECT_EQ(listed("dir"), (Names{"b.txt", "sub"}));
  EXPECT_EQ(listed("dir/sub"), Names{"c.txt"});
  write(file("in/dir/new.txt"), "new");
  write(file("in/dir/sub/deep.txt"), "deep");
  done({"import", file("in")});
  done({"update", id});
  EXPECT_EQ(listed("dir"), (Names{"b.txt", "new.txt", "sub"}));
  EXPECT_EQ(listed("dir/sub"), (Names{"c.txt", "deep.txt"}));
  std::filesystem::remove_all(in_mount("dir/sub"));
  write(in_mount("dir/mine.txt"), "mine");
  EXPECT_EQ(listed("dir"), (Names{"b.txt", "mine.txt", "new.txt"}));
  done({"discard", id, "dir/sub", "dir/mine.txt"});
  EXPECT_EQ(listed("dir"), (Names{"b.txt", "new.txt", "sub"}));
  EXPECT_EQ(listed("dir/sub"), (Names{"c.txt", "deep.txt"}));
  done({"rollback", id});
}

TEST_F(Commands, ASecondCommitAnswersWithTheFirst) {
  const std::string id = mount();
  write(in_mount("x"), "x");
  done({"commit", id});
  const std::string commit = head();
  EXPECT_NE(done({"commit", id}).find(commit), std::string::npos);
  EXPECT_EQ(head(), commit);
  refused(1, "already committed", {"rollback", id});
  refused(1, "already committed", {"mount", mountpoint_, "--session", id});
}

TEST_F(Commands, ACommitWithoutChangesMakesNoCommit) {
  const std::string before = head();
  const std::string id = mount();
  EXPECT_NE(done({"commit", id}).find("no changes"), std::string::npos);
  EXPECT_EQ(head(), before);
  EXPECT_EQ(status_of(id, "reason"), "no_changes");
}

TEST_F(Commands, APrefixIsTheRootAndNothingElseIsCommitted) {
  const std::string id = mount({"--path-prefix", "dir/sub"});
  EXPECT_EQ(read(in_mount("c.txt")), "c\n");
  write(in_mount("d.txt"), "d");
  done({"commit", id});
  EXPECT_EQ(content("dir/sub/d.txt"), "d");
  EXPECT_EQ(content("a.txt"), "a");
}

TEST_F(Commands, AReadOnlyMountRefusesEveryChange) {
  const std::string id = mount({"-o", "ro,nosuid,_netdev,x-systemd.automount"});
  EXPECT_EQ(::open(in_mount("x").c_str(), O_CREAT | O_WRONLY, 0644), -1);
  EXPECT_EQ(errno, EROFS);
  done({"rollback", id});
}

TEST_F(Commands, SessionsListsOpenAndEndedOnes) {
  const std::string open = mount();
  const std::string listed = done({"sessions"});
  EXPECT_NE(listed.find(open), std::string::npos);
  EXPECT_NE(listed.find(mountpoint_), std::string::npos);
  done({"rollback", open});
  EXPECT_EQ(done({"sessions", "--open"}), "There are no sessions.");
  EXPECT_EQ(done({"sessions", "--open", "--json"}), "[]");
  EXPECT_NE(done({"sessions", "--json"}).find("\"rolled_back\""), std::string::npos);
}

TEST_F(Commands, ARunIsNotCommittedFromOutsideButCanBeRolledBack) {
  const std::string before = head();
  shell("'" ESCROW_BINARY "' --repo '" + repository_ + "' run --result '" + file("result") + "' -- sh -c 'touch x; > " +
        file("started") + "; exec sleep 1000' > /dev/null 2>&1 &");
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(file("started")); }));
  const std::string listed = done({"sessions", "--open", "--json"});
  const std::string id = listed.substr(listed.find(":\"") + 2, 16);
  refused(1, "a command still runs in it", {"commit", id});
  refused(1, "a command still runs in it", {"unmount", id});
  EXPECT_EQ(status_of(id, "state"), "open");
  done({"rollback", id});
  EXPECT_EQ(status_of(id, "reason"), "cancelled");
  EXPECT_EQ(head(), before);
  EXPECT_TRUE(eventually([&] { return read(file("result")).find("cancelled") != std::string::npos; }));
}

TEST_F(Commands, ASessionThatAnotherCommandHoldsForAMomentIsWaitedFor) {
  const std::string id = mount();
  write(in_mount("x"), "x");
  unmount_outside(id);
  shell("for n in 1 2 3 4 5 6; do '" ESCROW_BINARY "' --repo '" + repository_ + "' diff " + id +
            " --name-status >> out & done; wait",
        {.directory = directory_.path(), .environment = {}, .input = {}});
  EXPECT_EQ(shell("grep -c x '" + file("out") + "'"), "6");
  done({"rollback", id});
}

TEST_F(Commands, NamesThatLookLikeListsAreTakenAsTheyAre) {
  const std::string id = mount();
  write(in_mount("[a,b]"), "x");
  write(in_mount("a"), "x");
  done({"discard", id, "[a,b]"});
  EXPECT_EQ(done({"diff", id, "--name-status"}), "A\ta");
  done({"rollback", id});
}

TEST_F(Commands, AKilledHostLosesNothingThatWasFsynced) {
  const std::string id = mount();
  write(in_mount("kept.txt"), "kept");
  const int fd = ::open(in_mount("kept.txt").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::fsync(fd), 0);
  ::close(fd);
  shell("pid=$(fuser '" + repository_ + "/escrow/sessions/" + id + "/lock' 2>/dev/null || pgrep -f '[m]ount " +
        mountpoint_ + "$'); kill -9 $pid; while kill -0 $pid 2>/dev/null; do sleep 0.05; done; umount -l '" +
        mountpoint_ + "' 2>/dev/null || true");
  EXPECT_EQ(status_of(id, "state"), "open");
  done({"commit", id});
  EXPECT_EQ(content("kept.txt"), "kept");
}

}  // namespace
}  // namespace escrow::test
