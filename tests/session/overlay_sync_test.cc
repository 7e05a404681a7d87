// What the overlay has put on disk before a row names it, and when a session is detached.
#include "tests/session/overlay_fixture.h"

namespace escrow::session {
namespace {

// A power loss never leaves a name with neither the old bytes nor the new.
class Replaced : public OverlayTest, public testing::WithParamInterface<int> {};

TEST_P(Replaced, ContentThatTakesThePlaceOfAnotherIsOnDiskBeforeItsRow) {
  std::map<std::string, std::string> old;
  for (int n = 0; n < GetParam(); ++n) old["f" + std::to_string(n)] = "old";
  base(objects.put_files(old));
  staging.fail_next_sync_of_all();
  for (const auto& [name, content] : old) {
    write(overlay->make_node(kRootNode, "new", kFile, 0, kRootUser).node, "newer");
    overlay->rename(kRootNode, "new", kRootNode, name, RenameMode::replace);
  }
  try {
    overlay->flush(false);
  } catch (const Error&) {
    overlay->flush(false);
  }
  overlay->abandon();
  journal.barrier();  // SQLite's checkpoint, at some time
  staging.crash();
  open();
  for (const auto& [name, content] : old) EXPECT_EQ(read(node(name)), "newer") << name;
}

INSTANTIATE_TEST_SUITE_P(OneByOneAndAllAtOnce, Replaced, testing::Values(1, 200));

// A file of the base is cut short, on disk and not yet in its row. A process that finds it so may let it grow again and
// be killed in its turn: the base is gone from behind the cut for good.
class CutShort : public OverlayTest {
 protected:
  static constexpr std::uint64_t kCut = 1029, kGrown = 500000;

  CutShort() {
    base(objects.put_files({{"f", std::string(2 << 20, 'b')}}));
    write(node("f"), "first");
    overlay->sync_file(node("f"));
    overlay->change_attributes(node("f"), {.size_bytes = kCut});
  }
  void be_killed() {
    overlay->abandon();
    open();
  }
  void lose_power_of_no_page() {
    overlay->abandon();
    journal.drop_unbarriered();
    staging.crash([] { return true; });
    open();
  }
  void grow() {
    ASSERT_EQ(at("f").size_bytes, kCut);
    write(node("f"), "end", kGrown);
  }
  std::string grown() {
    std::string text(kGrown + 3, '\0');
    text.replace(0, kCut, kCut, 'b').replace(0, 5, "first").replace(kGrown, 3, "end");
    return text;
  }
};

TEST_F(CutShort, NothingOfTheBaseComesBackAfterAPowerLossAndAKill) {
  lose_power_of_no_page();
  grow();
  be_killed();
  EXPECT_TRUE(read(node("f")) == grown());
}

TEST_F(CutShort, NothingOfTheBaseComesBackAfterTwoKills) {
  be_killed();
  grow();
  be_killed();
  EXPECT_TRUE(read(node("f")) == grown());
}

TEST_F(CutShort, NothingOfTheBaseComesBackAfterTwoPowerLosses) {
  lose_power_of_no_page();
  grow();
  lose_power_of_no_page();
  EXPECT_TRUE(read(node("f")) == grown());
}

// The disk has the file as long as it was, or as short as the kill left it.
TEST_F(CutShort, APowerLossAfterAKillLeavesNothingThatTheFileNeverHeld) {
  be_killed();
  ASSERT_EQ(at("f").size_bytes, kCut);
  lose_power();
  EXPECT_EQ(read(node("f")), grown().substr(0, kCut));
}

TEST_F(CutShort, AFailedSyncLeavesTheFileReadableAndFailsItsFsync) {
  overlay->abandon();
  staging.fail_next_sync();
  open();
  EXPECT_EQ(read(node("f")), grown().substr(0, kCut));
  EXPECT_EQ(code_of([&] { overlay->sync_file(node("f")); }), Errc::input_output);
  grow();
  be_killed();
  EXPECT_TRUE(read(node("f")) == grown()) << "the row was recorded all the same";
}

TEST_F(CutShort, AJournalThatTakesNothingDoesNotKeepTheSessionFromBeingRead) {
  overlay->abandon();
  journal.fail_with(Error(Errc::no_space, "the disk is full"));
  open();
  EXPECT_EQ(read(node("f")), grown().substr(0, kCut));
  journal.fail_with(std::nullopt);
}

TEST_F(OverlayTest, ManyLargeEditsAreSyncedWhenTheSessionIsDetachedAlsoWhenTheSyncOfAllFails) {
  std::map<std::string, std::string> files;
  for (int n = 0; n < 70; ++n) files["f" + std::to_string(n)] = std::string(5 << 18, 'a');
  base(objects.put_files(files));
  for (const bool fails : {false, true}) {
    for (auto& [name, content] : files) {
      write(node(name), fails ? "again" : "first", fails ? 1 << 19 : 1 << 20);
      content.replace(fails ? 1 << 19 : 1 << 20, 5, fails ? "again" : "first");
    }
    overlay->flush(false);
    if (fails) staging.fail_next_sync_of_all();
    overlay.reset();
    journal.barrier();
    staging.crash();
    open();
    for (const auto& [name, content] : files) EXPECT_TRUE(read(node(name)) == content) << name;
  }
}

}  // namespace
}  // namespace escrow::session
