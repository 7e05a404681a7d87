// Who finds a place for what takes long.
#include "daemon/service/concurrency_limit.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "api/problem.h"

namespace escrow::daemon {
namespace {

std::string refusal(ConcurrencyLimit& places, const std::string& principal) {
  try {
    places.take(principal);
  } catch (const api::Problem& problem) {
    EXPECT_EQ(problem.problem(), api::ProblemCode::unavailable);
    return problem.what();
  }
  return "";
}

TEST(ConcurrencyLimit, OnePrincipalLeavesSomeToTheOthers) {
  ConcurrencyLimit places({.all = 8, .of_one = 6});
  std::vector<std::shared_ptr<void>> one, other;
  for (int number = 0; number < 6; ++number) one.push_back(places.take("user:one"));
  EXPECT_EQ(refusal(places, "user:one"), "as many of these as one may have at once are under way for user:one (6); try "
                                         "again; nothing was changed");
  for (int number = 0; number < 2; ++number) other.push_back(places.take("user:other"));
  const std::string full = "the service does as many of these at once as it may (8); try again; nothing was changed";
  EXPECT_EQ(refusal(places, "user:other"), full);
  EXPECT_EQ(refusal(places, "user:one"), full);
  one.pop_back();
  EXPECT_EQ(refusal(places, "user:third"), "");  // and given back at once
  other.push_back(places.take("user:other"));
  EXPECT_EQ(refusal(places, "user:third"), full);
}

TEST(ConcurrencyLimit, AreAllFreeWhenTheyGo) {
  std::atomic<bool> is_done = false;
  std::thread working;
  {
    ConcurrencyLimit places({.all = 4, .of_one = 4});
    working = std::thread([&is_done, place = places.take("user:one")]() mutable {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      is_done = true;
      place.reset();
    });
  }
  EXPECT_TRUE(is_done);
  working.join();
}

}  // namespace
}  // namespace escrow::daemon
