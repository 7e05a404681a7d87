#include "daemon/process/fresh_mountpoint.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace {

std::function<void()> before_lock;  // called once, at the next flock(2) of this program

}  // namespace

// Comes before the C library's (ld.so(8)).
extern "C" int flock(int descriptor, int operation) noexcept {
  if (const auto act = std::exchange(before_lock, nullptr)) act();
  static const auto next = reinterpret_cast<int (*)(int, int)>(::dlsym(RTLD_NEXT, "flock"));
  return next(descriptor, operation);
}

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

TEST_F(FreshMountpoints, WhatAnotherRunHasMadeAnewIsLeftToIt) {
  auto first = make();
  const std::string path = first->path();
  fs::remove_all(closed(path));
  const auto next = make();
  ASSERT_EQ(next->path(), path);
  first.reset();
  EXPECT_TRUE(fs::is_directory(path));
}

TEST_F(FreshMountpoints, ARunThatHasLostItsPathLeavesItToTheOneThatHasIt) {
  const std::string usual = make()->path();
  std::unique_ptr<FreshMountpoint> other;
  before_lock = [&] {  // the first run has made the directory, and a late removal comes before its lock
    fs::remove_all(closed(usual));
    other = make();
  };
  const auto first = make();
  ASSERT_TRUE(other);
  EXPECT_EQ(other->path(), usual);
  EXPECT_NE(first->path(), usual);
  EXPECT_TRUE(fs::is_directory(usual));
  EXPECT_TRUE(fs::is_directory(first->path()));
}

TEST_F(FreshMountpoints, SoDoesOneThatHasLostARandomPath) {
  std::vector<std::unique_ptr<FreshMountpoint>> usual;
  for (int number = 0; number < 4; ++number) usual.push_back(make());
  const auto is_usual = [&](const fs::path& path) {
    return std::any_of(usual.begin(), usual.end(), [&](const auto& one) { return path == closed(one->path()); });
  };
  std::string random;
  // The locks of the usual paths are tried first, and belong to others; then that of the path made up at random.
  int locks = 0;
  std::function<void()> at_lock = [&] {
    if (++locks <= 4) {
      before_lock = at_lock;
      return;
    }
    for (const fs::directory_entry& entry : fs::directory_iterator(directory_.path()))
      if (!is_usual(entry.path())) random = entry.path();
    fs::remove(random);
    fs::create_directories(random + "/mnt");
  };
  before_lock = at_lock;
  const auto second = make();
  ASSERT_NE(random, "");
  EXPECT_TRUE(fs::is_directory(random + "/mnt"));
  EXPECT_NE(closed(second->path()), random);
}

// Each has its own directory from making it until it lets go of it, whoever comes and goes beside it.
TEST_F(FreshMountpoints, ManyProcessesNeverShareOne) {
  constexpr int kProcesses = 6, kRounds = 200;
  const auto use_many = [&] {
    for (int round = 0; round < kRounds; ++round) {
      const auto mountpoint = make();
      const int mine = ::open(mountpoint->path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      if (mine < 0 || ::flock(mine, LOCK_EX | LOCK_NB) != 0) return 1;
      struct stat opened {}, there {};
      const bool is_mine = ::fstat(mine, &opened) == 0 && ::lstat(mountpoint->path().c_str(), &there) == 0 &&
                           opened.st_ino == there.st_ino;
      ::close(mine);
      if (!is_mine) return 2;
    }
    return 0;
  };
  std::vector<pid_t> processes;
  for (int at = 0; at < kProcesses; ++at) {
    processes.push_back(::fork());
    if (processes.back() == 0) {
      int status = 3;
      try {
        status = use_many();
      } catch (const std::exception&) {
      }
      ::_exit(status);
    }
  }
  for (const pid_t process : processes) {
    int status = 0;
    ASSERT_EQ(::waitpid(process, &status, 0), process);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_TRUE(nothing_is_left());
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

TEST_F(FreshMountpoints, BesideAStrayFileAllRunsHaveOnePathStill) {
  const std::string path = make()->path();
  fs::create_directories(path);
  std::ofstream(closed(path) + "/stray") << "stray";
  const std::string next = make()->path();
  EXPECT_NE(next, path);
  EXPECT_EQ(make()->path(), next);
  EXPECT_TRUE(fs::exists(closed(path) + "/stray"));
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
