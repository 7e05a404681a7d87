// git's lock of an index, taken by Escrow: whose it is, and when it goes.
#include "daemon/host/index_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <string>

#include "session/base/error.h"
#include "tests/support/temporary_directory.h"

namespace escrow::test {
namespace {

using daemon::IndexLock;

class IndexLockTest : public testing::Test {
 protected:
  std::optional<IndexLock> take(const std::string& scratch = "held") const {
    const std::string path = scratch.starts_with('/') ? scratch : directory_.path() + "/" + scratch;
    return IndexLock::take(index_, path, std::chrono::steady_clock::now());
  }
  bool is_locked() const { return ::access(IndexLock::path_of(index_).c_str(), F_OK) == 0; }
  void lock_as_git(const std::string& content = "") const { std::ofstream(IndexLock::path_of(index_)) << content; }

  support::TemporaryDirectory directory_;
  const std::string index_ = directory_.path() + "/index";
};

TEST_F(IndexLockTest, ItIsTheFileThatGitMakes) {
  {
    const std::optional<IndexLock> lock = take();
    ASSERT_TRUE(lock);
    EXPECT_LT(::open((index_ + ".lock").c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666), 0);
    EXPECT_NE(::access((directory_.path() + "/held").c_str(), F_OK), 0);
  }
  EXPECT_FALSE(is_locked());
}

TEST_F(IndexLockTest, ALockOfGitsStaysWhateverIsInIt) {
  for (const std::string& content : {std::string(), std::string("DIRC"), std::string(4096, 'x')}) {
    lock_as_git(content);
    EXPECT_FALSE(take());
    EXPECT_TRUE(is_locked());
  }
}

// One of a process that was killed: its file is there all the time, until it goes with the second object.
TEST_F(IndexLockTest, ALockThatEscrowLeftIsTakenOverWithoutAGap) {
  const std::string path = IndexLock::path_of(index_);
  const std::optional<IndexLock> first = take();
  struct stat left {}, taken {};
  ASSERT_EQ(::stat(path.c_str(), &left), 0);
  {
    const std::optional<IndexLock> second = take();
    EXPECT_TRUE(second);
    ASSERT_EQ(::stat(path.c_str(), &taken), 0);
    EXPECT_EQ(taken.st_ino, left.st_ino) << "it is another file: git could have made its own in between";
  }
  EXPECT_FALSE(is_locked());
}

TEST_F(IndexLockTest, ALockThatSomebodyMadeInItsPlaceStays) {
  {
    const std::optional<IndexLock> lock = take();
    ASSERT_EQ(::unlink(IndexLock::path_of(index_).c_str()), 0);
    lock_as_git();
  }
  EXPECT_TRUE(is_locked());
}

TEST_F(IndexLockTest, WithoutHardLinksItIsMadeAsGitDoes) {
  struct stat here {}, there {};
  ASSERT_EQ(::stat(directory_.path().c_str(), &here), 0);
  if (::stat("/dev/shm", &there) != 0 || here.st_dev == there.st_dev) GTEST_SKIP() << "there is one file system only";
  std::string elsewhere = "/dev/shm/escrow-test-XXXXXX";
  ASSERT_NE(::mkdtemp(elsewhere.data()), nullptr);
  {
    const std::optional<IndexLock> lock = take(elsewhere + "/held");
    EXPECT_TRUE(lock);
    EXPECT_TRUE(is_locked());
    EXPECT_TRUE(take(elsewhere + "/held")) << "its content says whose it is";
  }
  lock_as_git();
  EXPECT_FALSE(take(elsewhere + "/held"));
  EXPECT_EQ(::rmdir(elsewhere.c_str()), 0);
}

TEST_F(IndexLockTest, WhereNoFileCanBeMadeItSaysWhich) {
  try {
    IndexLock::take(directory_.path() + "/no/index", directory_.path() + "/held", std::chrono::steady_clock::now());
    FAIL() << "there is no such directory";
  } catch (const session::Error& error) {
    EXPECT_NE(std::string(error.what()).find("/no/index.lock"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace escrow::test
