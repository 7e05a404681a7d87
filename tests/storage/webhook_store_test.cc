// How far webhooks have come, and what they gave up.
#include "storage/database/webhook_store.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

WebhookStore::Dead dead(std::int64_t event) {
  return {.number = 0, .event = event, .type = "token.created", .document = "{}", .error = "no", .time_s = 7};
}

TEST(WebhookStore, APositionAndTheDeadLetterBehindItAreThereForTheNextProcess) {
  const support::TemporaryDirectory directory;
  const std::string path = directory.path() + "/webhooks.db";
  {
    WebhookStore store(path);
    EXPECT_FALSE(store.position("ci"));
    store.set("ci", {.told = 5, .failing_since_s = 3});
    store.give_up("ci", dead(6));
    store.set("other", {.told = 1, .failing_since_s = 2});
  }
  WebhookStore store(path);
  EXPECT_EQ(store.position("ci")->told, 6);
  EXPECT_FALSE(store.position("ci")->failing_since_s);
  EXPECT_EQ(store.position("other")->failing_since_s, 2);
  ASSERT_EQ(store.count_dead("ci"), 1);
  EXPECT_EQ(store.count_dead("other"), 0);
  const WebhookStore::Dead letter = store.dead_after("ci", 0, 10).at(0);
  EXPECT_EQ(letter.event, 6);
  EXPECT_EQ(letter.error, "no");
  EXPECT_FALSE(store.forget_dead("other", letter.number));
  EXPECT_TRUE(store.forget_dead("ci", letter.number));
  store.give_up("ci", dead(7));
  EXPECT_EQ(store.dead_after("ci", 0, 10).at(0).number, letter.number + 1);
}

TEST(WebhookStore, OfTooManyDeadLettersTheNewestAreKept) {
  const support::TemporaryDirectory directory;
  WebhookStore store(directory.path() + "/webhooks.db");
  store.give_up("other", dead(1));
  for (std::int64_t event = 1; event <= WebhookStore::kDeadKept + 2; ++event) store.give_up("ci", dead(event));
  EXPECT_EQ(store.count_dead("ci"), WebhookStore::kDeadKept);
  EXPECT_EQ(store.dead_after("ci", 0, 1).at(0).event, 3);
  EXPECT_EQ(store.count_dead("other"), 1);
}

}  // namespace
}  // namespace escrow::storage
