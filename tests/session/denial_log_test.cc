// Denials: counted by kind, bounded, written in the background and never in the caller's way.
#include "session/decorators/denial_log.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "session/base/error.h"
#include "tests/session/fake_services.h"

namespace escrow::session {
namespace {

using namespace std::chrono_literals;

class Denials : public testing::Test {
 protected:
  std::unique_ptr<DenialLog> open() {
    return std::make_unique<DenialLog>(id, world.catalog, world.clock, world.log,
                                       [this](const std::vector<TracedDenial>& lines) {
                                         auto all = traced.lock();
                                         all->insert(all->end(), lines.begin(), lines.end());
                                       });
  }
  static Denial denial(int number) { return {"open", "read", "file " + std::to_string(number), "policy 1, rule 1"}; }
  std::uint64_t total() {
    std::uint64_t count = 0;
    for (const DenialCount& row : world.catalog.denials(id)) count += row.count;
    return count;
  }

  support::FakeWorld world;
  const SessionId id = SessionId::generate();
  Synchronized<std::vector<TracedDenial>> traced;
};

TEST_F(Denials, AreCountedByKindAndTracedWithWhoAndWhy) {
  const auto log = open();
  world.clock.set({100, 5});
  log->denied(denial(1));
  world.clock.set({200, 0});
  log->denied(denial(1));
  log->denied(denial(2));
  log->flush();
  const std::vector<DenialCount> rows = world.catalog.denials(id);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0], (DenialCount{"open", "file 1", "policy 1, rule 1", 2, {100, 5}, {200, 0}}));
  EXPECT_EQ(rows[1].count, 1u);
  std::uint64_t lines = 0;
  const auto all = traced.lock();
  for (const TracedDenial& line : *all) {
    EXPECT_EQ(line.denial.action, "read");
    lines += line.count;
  }
  EXPECT_EQ(lines, 3u);
}

TEST_F(Denials, AreWrittenWithoutBeingAskedFor) {
  const auto log = open();
  log->denied(denial(1));
  for (int i = 0; i < 6000 && total() == 0; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(total(), 1u);
}

TEST_F(Denials, TheEndOfTheLogWritesWhatIsLeft) {
  open()->denied(denial(1));
  EXPECT_EQ(total(), 1u);
}

TEST_F(Denials, AStormIsBoundedAndLosesNoCount) {
  constexpr int kStorm = 50'000;
  const auto begin = std::chrono::steady_clock::now();
  {
    const auto log = open();
    for (int i = 0; i < kStorm; ++i) log->denied(denial(i));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 60s);
  }
  EXPECT_EQ(total(), std::uint64_t{kStorm});
  EXPECT_EQ(world.catalog.denials(id).size(), kMaxDenials + 1);
  std::uint64_t lines = 0, counted = 0;
  const auto all = traced.lock();
  for (const TracedDenial& line : *all) {
    lines += 1;
    counted += line.count;
  }
  EXPECT_EQ(counted, std::uint64_t{kStorm});
  // Ten thousand at once, then a hundred a second and one for what was left out, four times a second.
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LE(static_cast<double>(lines), 10'100 + 110 * took.count());
}

TEST_F(Denials, ACatalogThatRefusesIsTriedAgainAndNothingIsLost) {
  std::atomic<bool> refuses = true;
  world.catalog.before_denials = [&] {
    if (refuses) throw Error(Errc::no_space, "the disk is full");
  };
  const auto log = open();
  log->denied(denial(1));
  log->flush();
  EXPECT_EQ(total(), 0u);
  EXPECT_EQ(world.log.lines().size(), 1u) << "said once";
  log->denied(denial(1));
  log->flush();
  EXPECT_EQ(world.log.lines().size(), 1u);
  refuses = false;
  log->flush();
  EXPECT_EQ(total(), 2u);
}

}  // namespace
}  // namespace escrow::session
