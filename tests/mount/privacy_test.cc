// Every local user may enter what root mounts, if its root directory lets them: it does not where the repository, or
// the directory that is mounted on, was closed to them.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/mount/cli_fixture.h"

namespace escrow::test {
namespace {

class Privacy : public EscrowCommands {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root's mounts are open to others";
    EscrowCommands::SetUp();
    std::filesystem::permissions(directory_.path(), std::filesystem::perms(0755));
    std::filesystem::permissions(mountpoint_, std::filesystem::perms(0755));
  }
  // As a user of this machine that nobody has heard of.
  static std::string as(int uid) {
    const std::string id = std::to_string(uid);
    return "setpriv --reuid=" + id + " --regid=" + id + " --clear-groups ";
  }
  bool can_read(int uid, const std::string& path) const {
    return run_process({"/bin/sh", "-c", "cd / && " + as(uid) + "cat '" + path + "'"}).status == 0;
  }
  void close_repository() const { std::filesystem::permissions(repository_, std::filesystem::perms(0700)); }
};

constexpr int kOther = 54321, kOwner = 54322;

TEST_F(Privacy, AMountOfAnOpenRepositoryIsOpen) {
  mount();
  EXPECT_TRUE(can_read(kOther, in_mount("a.txt")));
}

TEST_F(Privacy, AMountOfAClosedRepositoryIsItsOwnersAlone) {
  close_repository();
  const std::string session = mount({"-o", "uid=" + std::to_string(kOwner)});
  EXPECT_FALSE(can_read(kOther, in_mount("a.txt")));
  EXPECT_FALSE(can_read(kOther, in_mount("dir/b.txt")));
  EXPECT_TRUE(can_read(kOwner, in_mount("a.txt")));
  EXPECT_TRUE(can_read(0, in_mount("a.txt")));
  // Not even its owner opens it: the mode of the mount's root is not the session's alone to say.
  shell(as(kOwner) + "chmod 777 '" + mountpoint_ + "'");
  EXPECT_FALSE(can_read(kOther, in_mount("a.txt")));
  done({"commit", session});
}

TEST_F(Privacy, WhatLeadsToTheRepositoryCountsToo) {
  std::filesystem::create_directory(file("closed"));
  std::filesystem::permissions(file("closed"), std::filesystem::perms(0700));
  std::filesystem::rename(repository_, file("closed/data.git"));
  repository_ = file("closed/data.git");
  mount();
  EXPECT_FALSE(can_read(kOther, in_mount("a.txt")));
}

TEST_F(Privacy, AMountOnAClosedDirectoryStaysClosed) {
  std::filesystem::permissions(mountpoint_, std::filesystem::perms(0700));
  mount();
  EXPECT_FALSE(can_read(kOther, in_mount("a.txt")));
}

TEST_F(Privacy, WhoeverAsksForItLetsOthersIn) {
  close_repository();
  mount({"--allow-other"});
  EXPECT_TRUE(can_read(kOther, in_mount("a.txt")));
}

TEST_F(Privacy, TheMountOfARunIsForItsUserAlone) {
  for (const bool closed : {false, true}) {
    if (closed) close_repository();
    const std::string look = "cd / && for uid in " + std::to_string(kOther) + " " + std::to_string(kOwner) +
                             "; do setpriv --reuid=$uid --regid=$uid --clear-groups " +
                             "cat \"$ESCROW_MOUNT/a.txt\" && echo in; done; stat -c %a \"$ESCROW_MOUNT\"; true";
    const ProcessResult own = escrow({"run", "--", "sh", "-c", look});
    EXPECT_EQ(own.out, "755\n") << own.err;
    // The command's user enters by the path; nobody else does.
    const ProcessResult others =
        escrow({"run", "--uid", std::to_string(kOwner), "--gid", std::to_string(kOwner), "--", "sh", "-c",
                "cd / && cat \"$ESCROW_MOUNT/a.txt\" && stat -c '%a %u' \"$ESCROW_MOUNT/..\""});
    EXPECT_EQ(others.out, "a\n700 " + std::to_string(kOwner) + "\n") << others.err;
  }
}

TEST_F(Privacy, ARunOnANamedDirectoryIsAsClosedAsThatAndTheRepository) {
  close_repository();
  const ProcessResult result = escrow({"run", "--mountpoint", mountpoint_, "--", "sh", "-c",
                                       "cd / && " + as(kOther) + "cat '" + in_mount("a.txt") + "'; echo $?"});
  EXPECT_EQ(result.out, "1\n") << result.err;
}

TEST_F(Privacy, NothingOfARunsDirectoriesStays) {
  const std::string path = shell("'" ESCROW_BINARY "' --repo '" + repository_ + "' run -- sh -c 'echo $ESCROW_MOUNT'");
  EXPECT_FALSE(std::filesystem::exists(path)) << path;
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(path).parent_path())) << path;
}

}  // namespace
}  // namespace escrow::test
