// What the limits of a session count, over fakes.
#include "session/decorators/limited_file_system.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "session/base/error.h"
#include "session/overlay/overlay.h"
#include "tests/support/fake_journal.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/fake_staging.h"

namespace escrow::session {
namespace {

constexpr std::uint32_t kFile = S_IFREG | 0644, kDirectory = S_IFDIR | 0755;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class LimitedTest : public testing::Test {
 protected:
  LimitedTest() { options_.base_tree = objects_.put_files({{"large", std::string(10 * kMiB, 'b')}, {"small", "s"}}); }

  void limit(const SessionLimits& limits) {
    overlay_ = std::make_unique<Overlay>(options_, objects_, staging_, journal_, clock_, log_);
    limited_ = std::make_unique<LimitedFileSystem>(*overlay_, *overlay_, limits);
  }
  NodeId node(std::string_view name) { return limited_->lookup(kRootNode, name)->node; }
  NodeId make(std::string_view name, std::uint32_t mode = kFile) {
    return limited_->make_node(kRootNode, name, mode, 0, {}).node;
  }
  void write(NodeId id, std::uint64_t offset, std::uint64_t size) {
    const std::string bytes(size, 'w');
    limited_->write(id, offset, std::as_bytes(std::span(bytes)), WriteOrigin::call);
  }
  template <typename Call>
  void expect_refused(Call call) {
    try {
      call();
      ADD_FAILURE() << "it was not refused";
    } catch (const Error& error) {
      EXPECT_EQ(Errc::quota_exceeded, error.code()) << error.what();
    }
  }

  support::FakeObjectStore objects_;
  support::FakeStaging staging_;
  support::FakeJournal journal_;
  SystemClock clock_;
  NullLog log_;
  Overlay::Options options_;
  std::unique_ptr<Overlay> overlay_;
  std::unique_ptr<LimitedFileSystem> limited_;
};

TEST_F(LimitedTest, EachNameCountsAsAFile) {
  limit({.files = 4});
  const NodeId one = make("one");
  limited_->link(one, kRootNode, "two");
  make("directory", kDirectory);
  limited_->make_symlink(kRootNode, "link", "one", {});
  expect_refused([&] { limited_->link(one, kRootNode, "five"); });
  expect_refused([&] { make("five"); });
  limited_->unlink(kRootNode, "two");
  limited_->link(one, kRootNode, "five");
}

TEST_F(LimitedTest, WhatWasThereBeforeIsNoFileOfTheSession) {
  limit({.files = 1});
  write(node("small"), 0, 1);
  limited_->rename(kRootNode, "small", kRootNode, "renamed", RenameMode::replace);
  limited_->link(node("renamed"), kRootNode, "one");
  expect_refused([&] { make("two"); });
}

TEST_F(LimitedTest, TruncatingALargeFileOfTheBaseNeedsNoRoom) {
  limit({.staged_bytes = kMiB});
  limited_->change_attributes(node("large"), {.size_bytes = 0});
  EXPECT_EQ(0u, limited_->attributes(node("large")).size_bytes);
  write(node("large"), 0, kMiB / 2);
}

TEST_F(LimitedTest, AnEditOfALargeFileOfTheBaseNeedsTheRoomOfItsBlocks) {
  limit({.staged_bytes = kMiB});
  write(node("large"), 5 * kMiB, 100);
  limited_->change_attributes(node("large"), {.size_bytes = 6 * kMiB});
  expect_refused([&] { write(node("large"), 0, 2 * kMiB); });
}

TEST_F(LimitedTest, HolesCountAsTheBytesThatTheyReadAs) {
  limit({.staged_bytes = kMiB});
  const NodeId file = make("sparse");
  expect_refused([&] { limited_->change_attributes(file, {.size_bytes = 2 * kMiB}); });
  expect_refused([&] { write(file, 2 * kMiB, 1); });
  expect_refused([&] { limited_->allocate(file, AllocateMode::reserve, 0, 2 * kMiB); });
}

TEST_F(LimitedTest, RoomThatWasGivenBackIsRoomAgain) {
  limit({.staged_bytes = kMiB});
  for (int i = 0; i < 20; ++i) {
    const NodeId file = make("file");
    write(file, 0, 700'000);
    limited_->unlink(kRootNode, "file");
  }
}

}  // namespace
}  // namespace escrow::session
