#include "daemon/process/fresh_mountpoint.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "tests/support/temporary_directory.h"

namespace escrow::daemon {
namespace {

namespace fs = std::filesystem;

class FreshMountpoints : public testing::Test {
 protected:
  FreshMountpoints() { ::setenv("XDG_RUNTIME_DIR", directory_.path().c_str(), 1); }
  ~FreshMountpoints() override { ::unsetenv("XDG_RUNTIME_DIR"); }

  static std::unique_ptr<FreshMountpoint> make(const std::string& key = "a key") {
    return std::make_unique<FreshMountpoint>(::geteuid(), ::getegid(), key);
  }
  static std::string closed(const std::string& path) { return fs::path(path).parent_path(); }
  static mode_t mode_of(const std::string& path) {
    struct stat about {};
    EXPECT_EQ(::lstat(path.c_str(), &about), 0) << path;
    return about.st_mode & 07777;
  }
  bool nothing_is_left() const { return fs::is_empty(directory_.path()); }

  support::TemporaryDirectory directory_;
};

TEST_F(FreshMountpoints, OneKeyHasOnePathAfterTheOther) {
  const std::string first = make()->path();
  EXPECT_TRUE(nothing_is_left());
  EXPECT_EQ(make()->path(), first);
  EXPECT_NE(make("another key")->path(), first);
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(FreshMountpoints, OnlyItsUserEntersIt) {
  const auto mountpoint = make();
  EXPECT_EQ(mode_of(closed(mountpoint->path())), 0700u);
  EXPECT_EQ(mode_of(mountpoint->path()), 0755u);
}

TEST_F(FreshMountpoints, TwoAtOnceHaveTwoPaths) {
  const auto first = make(), second = make();
  EXPECT_NE(first->path(), second->path());
  EXPECT_TRUE(fs::is_directory(first->path()) && fs::is_directory(second->path()));
}

TEST_F(FreshMountpoints, ARemovalThatComesLateLeavesTheNextOneAlone) {
  const std::string path = make()->path();
  const auto next = make();
  ASSERT_EQ(next->path(), path);
  remove_fresh_mountpoint(path);
  EXPECT_TRUE(fs::is_directory(path));
}

TEST_F(FreshMountpoints, WhatAKilledRunLeftIsTakenAway) {
  const std::string path = make()->path();
  fs::create_directories(path);
  EXPECT_EQ(make()->path(), path);
  fs::create_directories(path);
  remove_fresh_mountpoint(path);
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(FreshMountpoints, ItIsGoneWhenItsRunHasTakenItAwayAndNotBefore) {
  auto mountpoint = make();
  const std::string path = mountpoint->path();
  EXPECT_FALSE(is_fresh_mountpoint_gone(path));
  fs::remove(path);
  EXPECT_FALSE(is_fresh_mountpoint_gone(path)) << "the directory above it is there";
  mountpoint.reset();
  EXPECT_TRUE(is_fresh_mountpoint_gone(path));
  EXPECT_FALSE(is_fresh_mountpoint_gone(directory_.path() + "/never/there")) << "none of ours";
}

TEST_F(FreshMountpoints, WhatSomebodyElseMadeIsNotUsed) {
  const std::string path = make()->path();
  fs::create_directory(directory_.path() + "/elsewhere");
  fs::create_symlink(directory_.path() + "/elsewhere", closed(path));
  EXPECT_NE(make()->path(), path) << "a link";
  fs::remove(closed(path));
  fs::create_directory(closed(path));
  fs::create_symlink(directory_.path() + "/elsewhere", path);
  EXPECT_NE(make()->path(), path) << "a directory with a link in it";
  fs::remove(path);
  const int held = ::open(closed(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  EXPECT_NE(make()->path(), path) << "a directory that is locked";
  ::close(held);
  EXPECT_TRUE(fs::is_empty(directory_.path() + "/elsewhere"));
}

TEST_F(FreshMountpoints, OtherDirectoriesAreNotRemoved) {
  for (const std::string& name : {std::string("/escrow-toolong/mnt"), std::string("/other-abcdef/mnt"),
                                  std::string("/escrow-abcdef/else")}) {
    fs::create_directories(directory_.path() + name);
    remove_fresh_mountpoint(directory_.path() + name);
    EXPECT_TRUE(fs::is_directory(directory_.path() + name)) << name;
  }
}

}  // namespace
}  // namespace escrow::daemon
