// Files that a process writes without a call: their times are those of the staging file.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "tests/session/overlay_fixture.h"

namespace escrow::session {
namespace {

constexpr OpenIntent kRawWrite{.write = true, .raw = true};

// This staging area hands out its files, and a test says when they were written last.
class HandingOut final : public FakeStaging {
 public:
  StagingUsage usage(StagingId id) const override {
    StagingUsage usage = FakeStaging::usage(id);
    usage.modified = modified;
    if (at_next_look) std::exchange(at_next_look, {})();
    return usage;
  }
  std::unique_ptr<RawFile> raw(StagingId) override { return std::make_unique<File>(); }

  Timestamp modified{2000, 0};
  mutable std::function<void()> at_next_look;

 private:
  struct File final : RawFile {
    int descriptor() const override { return -1; }
  };
};

class OverlayRaw : public OverlayTest {
 protected:
  OverlayRaw() {
    overlay = std::make_unique<Overlay>(options, objects, handed_out, journal, clock, log);
    file = overlay->make_node(kRootNode, "f", kFile, 0, kRootUser).node;
    EXPECT_TRUE(overlay->open(file, kRawWrite));
  }
  ~OverlayRaw() override { overlay.reset(); }

  HandingOut handed_out;
  NodeId file;
};

TEST_F(OverlayRaw, TwoLooksAtOnceBothSeeTheLastWrite) {
  handed_out.modified = {4'000'000'000, 7};
  Attributes second;
  handed_out.at_next_look = [&] { std::thread([&] { second = overlay->attributes(file); }).join(); };
  const Attributes first = overlay->attributes(file);
  EXPECT_EQ(handed_out.modified, second.modified);
  EXPECT_EQ(handed_out.modified, first.modified);
  EXPECT_EQ(handed_out.modified, first.changed);
}

TEST_F(OverlayRaw, ALookAfterTheLastCloseSeesTheLastWrite) {
  handed_out.modified = {4'000'000'000, 7};
  overlay->close(file, kRawWrite);
  const Attributes closed = overlay->attributes(file);
  EXPECT_FALSE(closed.volatile_bytes);
  EXPECT_EQ(handed_out.modified, closed.modified);
}

TEST_F(OverlayRaw, AChangeOfTheModeAfterAWriteKeepsItsOwnTime) {
  handed_out.modified = {3000, 0};
  const Timestamp before = clock.now();
  const Attributes changed = overlay->change_attributes(file, {.mode = 0600});
  EXPECT_EQ(handed_out.modified, changed.modified);
  EXPECT_GE(changed.changed, before);
  overlay->close(file, kRawWrite);
  EXPECT_GE(overlay->attributes(file).changed, before);
}

}  // namespace
}  // namespace escrow::session
