#include "session/overlay/lost_bytes.h"

#include <gtest/gtest.h>

#include <bitset>
#include <random>

namespace escrow::session {
namespace {

TEST(LostBytes, AreFoundAgainWhereTheyAreWritten) {
  LostBytes lost;
  lost.add(0, 100);
  lost.add(200, 300);
  EXPECT_EQ(lost.text(), "0-100,200-300");
  lost.add(100, 200);
  EXPECT_EQ(lost.text(), "0-300");
  lost.remove(50, 60);
  EXPECT_EQ(lost.text(), "0-50,60-300");
  lost.remove(0, 1000);
  EXPECT_TRUE(lost.empty());
}

TEST(LostBytes, AgreeWithASetOfBytesAndSurviveBeingWrittenDown) {
  std::mt19937 random(13);
  for (int round = 0; round < 200; ++round) {
    LostBytes lost;
    std::bitset<64> expected;
    for (int step = 0; step < 30; ++step) {
      const std::size_t begin = random() % 64, end = begin + random() % (65 - begin);
      const bool adds = random() % 2 == 0;
      adds ? lost.add(begin, end) : lost.remove(begin, end);
      for (std::size_t at = begin; at < end; ++at) expected[at] = adds;
      std::bitset<64> found;
      for (const auto& [first, last] : lost.ranges()) {
        ASSERT_LT(first, last);
        for (std::size_t at = first; at < last; ++at) found[at] = true;
      }
      ASSERT_EQ(found, expected) << round;
      ASSERT_EQ(LostBytes::parse(lost.text()), lost);
    }
  }
}

TEST(LostBytes, StayFewHoweverTheyAreScattered) {
  LostBytes lost;
  for (std::uint64_t page = 0; page < 100'000; ++page) lost.add(page * 8192, page * 8192 + 4096);
  EXPECT_LE(lost.ranges().size(), LostBytes::kMaxRanges);
  EXPECT_EQ(lost.ranges().begin()->first, 0u);
  EXPECT_EQ(lost.ranges().rbegin()->second, 99'999u * 8192 + 4096);
}

TEST(LostBytes, WhatIsMalformedIsNothing) {
  for (const char* text : {"", "-", "1", "1-", "x-y", "5-3", ",,"}) EXPECT_TRUE(LostBytes::parse(text).empty()) << text;
}

}  // namespace
}  // namespace escrow::session
