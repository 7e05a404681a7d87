#include "daemon/cli/retry.h"

#include <gtest/gtest.h>

#include <limits>

namespace escrow::daemon {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

TEST(Retry, PausesDoubleUpToFiveMinutesAndAreCutByAtMostHalf) {
  const Retries retries{.count = 100, .backoff = milliseconds(1000)};
  for (std::uint64_t number = 0; number < 12; ++number) {
    const milliseconds due = std::min(milliseconds(1000 << number), milliseconds(300000));
    EXPECT_EQ(pause_before_retry(retries, number, 0), due);
    for (const std::uint64_t random : {std::uint64_t{1}, std::uint64_t{123456789}, kMost}) {
      EXPECT_LE(pause_before_retry(retries, number, random), due);
      EXPECT_GE(pause_before_retry(retries, number, random), due / 2);
    }
  }
  EXPECT_EQ(pause_before_retry(retries, kMost, 0), milliseconds(300000));
  EXPECT_EQ(pause_before_retry({.count = 1, .backoff = milliseconds::max()}, 5, 0), milliseconds(300000));
}

TEST(Retry, WithoutABackoffThereIsNoPause) {
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{7}, kMost})
    EXPECT_EQ(pause_before_retry({.count = 3, .backoff = {}}, number, kMost), milliseconds(0));
}

}  // namespace
}  // namespace escrow::daemon
