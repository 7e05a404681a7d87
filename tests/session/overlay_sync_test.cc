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
