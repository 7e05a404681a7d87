#include "storage/disk/lock_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/session/eventually.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

using namespace std::chrono_literals;

class LockFile : public ::testing::Test {
 protected:
  support::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/gc.lock";
};

TEST_F(LockFile, ManyShareItAndOneHasItAlone) {
  UniqueFd first = lock_file(path_, LockKind::shared);
  UniqueFd second = lock_file(path_, LockKind::shared);
  EXPECT_TRUE(first && second);
  EXPECT_FALSE(try_lock_file(path_));
  first = UniqueFd();
  second = UniqueFd();
  UniqueFd alone = try_lock_file(path_);
  EXPECT_TRUE(alone);
  std::atomic<bool> shared = false;
  std::atomic<pid_t> asking = 0;
  std::thread other([&] {
    asking = ::gettid();
    shared = static_cast<bool>(lock_file(path_, LockKind::shared));
  });
  EXPECT_TRUE(support::eventually([&] { return shared || (asking != 0 && support::is_waiting(asking)); }));
  EXPECT_FALSE(shared);
  alone = UniqueFd();
  other.join();
  EXPECT_TRUE(shared);
}

TEST_F(LockFile, NobodyWaitsBehindWhoTriesToHaveItAlone) {
  UniqueFd publication = lock_file(path_, LockKind::shared);
  std::atomic<bool> got = false, done = false;
  std::thread collector([&] {
    got = static_cast<bool>(try_lock_file(path_, 60s));
    done = true;
  });
  for (int number = 0; number < 50; ++number) EXPECT_TRUE(lock_file(path_, LockKind::shared));
  EXPECT_FALSE(done);
  publication = UniqueFd();
  collector.join();
  EXPECT_TRUE(got);
}

}  // namespace
}  // namespace escrow::storage
