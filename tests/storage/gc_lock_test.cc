#include "storage/gc_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

namespace escrow::storage {
namespace {

class GcLock : public ::testing::Test {
 protected:
  GcLock() {
    std::string name = ::testing::TempDir() + "gc-lock-XXXXXX";
    directory_ = ::mkdtemp(name.data());
  }
  ~GcLock() override { std::filesystem::remove_all(directory_); }

  std::string path() const { return directory_ + "/gc.lock"; }

  std::string directory_;
};

TEST_F(GcLock, ManyShareItAndOneHasItAlone) {
  UniqueFd first = take_gc_lock(path(), LockKind::shared);
  UniqueFd second = take_gc_lock(path(), LockKind::shared);
  EXPECT_TRUE(first && second);
  first = UniqueFd();
  second = UniqueFd();
  UniqueFd alone = try_gc_lock_alone(path());
  EXPECT_TRUE(alone);
  std::atomic<bool> shared = false;
  std::thread other([&] { shared = static_cast<bool>(take_gc_lock(path(), LockKind::shared)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(shared);
  alone = UniqueFd();
  other.join();
  EXPECT_TRUE(shared);
}

TEST_F(GcLock, NobodyWaitsForALongPublicationBehindWhoWantsItAlone) {
  UniqueFd publication = take_gc_lock(path(), LockKind::shared);
  std::thread collector([&] { take_gc_lock(path(), LockKind::exclusive); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (int number = 0; number < 3; ++number) EXPECT_TRUE(take_gc_lock(path(), LockKind::shared));
  EXPECT_FALSE(try_gc_lock_alone(path()));
  publication = UniqueFd();
  collector.join();
}

TEST_F(GcLock, PublishersThatNeverPauseDoNotKeepOutWhoWantsItAlone) {
  using namespace std::chrono_literals;
  std::atomic<bool> done = false;
  std::atomic<int> shared = 0;
  std::vector<std::thread> publishers;
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  for (int number = 0; number < 6; ++number) {
    publishers.emplace_back([&] {
      while (!done && std::chrono::steady_clock::now() < deadline) {
        const UniqueFd lock = take_gc_lock(path(), LockKind::shared);
        ++shared;
        std::this_thread::sleep_for(5ms);
      }
    });
  }
  while (shared < 20) std::this_thread::sleep_for(1ms);
  UniqueFd alone = take_gc_lock(path(), LockKind::exclusive);
  const bool in_time = std::chrono::steady_clock::now() < deadline;
  done = true;
  alone = UniqueFd();
  for (std::thread& publisher : publishers) publisher.join();
  EXPECT_TRUE(in_time) << "it came only when the publishers had stopped";
}

}  // namespace
}  // namespace escrow::storage
