// Trees that several remove at once: what another removed first is gone, and no error.
#include "storage/disk/remove_tree.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "session/base/error.h"
#include "tests/support/seed.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

TEST(RemoveTreeTest, SeveralRemoveOneTree) {
  const support::TemporaryDirectory directory;
  const std::string aside = directory.path() + "/aside";
  for (std::uint64_t round = 0; round < support::gate_or_campaign(50, 200); ++round) {
    for (int one = 0; one < 8; ++one) {
      const std::string below = aside + '/' + std::to_string(one) + "/tree/d";
      std::filesystem::create_directories(below);
      std::ofstream(below + "/file") << "x";
    }
    std::latch all_are_there(4);
    std::atomic<int> refused = 0;
    std::vector<std::thread> removers;
    for (int i = 0; i < 4; ++i) {
      removers.emplace_back([&] {
        all_are_there.arrive_and_wait();
        try {
          remove_inside(aside, {});
        } catch (const session::Error&) {
          ++refused;
        }
      });
    }
    for (std::thread& remover : removers) remover.join();
    EXPECT_EQ(0, refused);
    EXPECT_TRUE(std::filesystem::is_empty(aside));
    std::filesystem::remove_all(aside);
  }
}

TEST(RemoveTreeTest, WhatIsNotThereIsNoErrorAndIsSaid) {
  const support::TemporaryDirectory directory;
  EXPECT_FALSE(remove_tree(directory.path() + "/none"));
  EXPECT_FALSE(remove_inside(directory.path() + "/none", {}));
}

}  // namespace
}  // namespace escrow::storage
