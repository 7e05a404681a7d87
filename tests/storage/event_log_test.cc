// The events that escrowd keeps for who follows them.
#include "storage/database/event_log.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

class EventLogTest : public testing::Test {
 protected:
  static EventLog::Event event(const std::string& document) {
    return {.number = 0, .type = "branch.updated", .repository = "data", .session = "", .issuer = "",
            .document = document};
  }

  support::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/events.db";
};

TEST_F(EventLogTest, EventsAndPositionsAreThereForTheNextProcess) {
  {
    EventLog log(path_);
    EXPECT_EQ(log.last(), 0);
    EXPECT_EQ(log.position("transition:data"), std::nullopt);
    log.append({event("one"), event("two")}, {{"transition:data", "7"}, {"head:data:main", "abc"}});
  }
  EventLog log(path_);
  EXPECT_EQ(log.last(), 2);
  const auto events = log.after(0, 10);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].document, "one");
  EXPECT_EQ(events[1].number, 2);
  EXPECT_EQ(events[1].type, "branch.updated");
  EXPECT_EQ(log.position("transition:data"), "7");
  EXPECT_EQ(log.positions("head:data:"), (std::map<std::string, std::string>{{"main", "abc"}}));
}

TEST_F(EventLogTest, AnEmptyPositionIsForgotten) {
  EventLog log(path_);
  const std::string branch = "head:data:bad\xff'\n%";
  log.append({}, {{branch, "abc"}, {"head:data2:x", "1"}});
  EXPECT_EQ(log.positions("head:data:").size(), 1u);
  log.append({}, {{branch, ""}});
  EXPECT_EQ(log.position(branch), std::nullopt);
  EXPECT_EQ(log.positions("head:data:").size(), 0u);
}

TEST_F(EventLogTest, OnlyTheNewestAreKeptAndNoNumberComesTwice) {
  EventLog log(path_);
  for (int turn = 0; turn < 3; ++turn) {
    log.append(std::vector<EventLog::Event>(EventLog::kKept / 2 + 1, event("x")), {});
  }
  const std::int64_t last = 3 * (EventLog::kKept / 2 + 1);
  EXPECT_EQ(log.last(), last);
  EXPECT_EQ(log.after(0, 1).at(0).number, last - EventLog::kKept + 1);
  EXPECT_EQ(log.after(0, 100'000).size(), static_cast<std::size_t>(EventLog::kKept));
  EXPECT_EQ(log.after(last - 3, 2).size(), 2u);
  EXPECT_TRUE(log.after(last, 10).empty());
  EXPECT_EQ(EventLog(path_).last(), last);
}

}  // namespace
}  // namespace escrow::storage
