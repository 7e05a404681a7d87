// What a session's files take of memory once they are recorded. In a program of its own: the whole process is weighed.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/stat.h>

#include <memory>
#include <string>

#include "session/overlay/overlay.h"
#include "storage/staging/sqlite_session_journal.h"
#include "storage/staging/tiered_staging_area.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

using session::NodeId;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// What waits to be appended, twice while it is being appended, and what the allocator and SQLite keep.
constexpr std::uint64_t kAtOnceBytes = 40 * kMiB;

std::uint64_t used_bytes() {
  ::malloc_trim(0);
  return ::mallinfo2().uordblks;
}

class StagingMemory : public testing::Test {
 protected:
  void make(std::string_view directory_name, std::uint64_t files, std::string_view content) {
    const NodeId directory =
        overlay_->make_node(session::kRootNode, directory_name, S_IFDIR | 0755, 0, {}).node;
    for (std::uint64_t i = 0; i < files; ++i) {
      const NodeId file = overlay_->make_node(directory, std::to_string(i), S_IFREG | 0644, 0, {}).node;
      overlay_->write(file, 0, std::as_bytes(std::span(content)), session::WriteOrigin::call);
    }
    overlay_->flush(false);
  }

  support::TemporaryDirectory directory_;
  support::FakeObjectStore objects_;
  TieredStagingArea staging_{directory_.path() + "/staging"};
  SqliteSessionJournal journal_{directory_.path()};
  session::SystemClock clock_;
  session::NullLog log_;
  std::unique_ptr<session::Overlay> overlay_ =
      std::make_unique<session::Overlay>(session::Overlay::Options{}, objects_, staging_, journal_, clock_, log_);
};

TEST_F(StagingMemory, BytesOfSmallFilesAreNotKept) {
  const std::uint64_t before = used_bytes();
  make("d", 4000, std::string(50'000, 'x'));  // 200 MB
  EXPECT_LT(used_bytes() - before, kAtOnceBytes);
}

TEST_F(StagingMemory, AMillionFilesTakeLessThanAKilobyteEach) {
  constexpr std::uint64_t kFiles = 1'000'000;
  const std::uint64_t before = used_bytes();
  for (int i = 0; i < 10; ++i) make(std::to_string(i), kFiles / 10, "a small file");
  const std::uint64_t each = (used_bytes() - before - kAtOnceBytes) / kFiles;
  RecordProperty("bytes_each", std::to_string(each));
  std::cout << each << " bytes each\n";
  EXPECT_LT(each, 1024u);
}

}  // namespace
}  // namespace escrow::storage
