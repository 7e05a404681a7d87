// The cache of large blobs: holes, room on the disk, its own bound, and reads that nobody waits for any more.
#include "storage/objects/blob_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "session/base/still_wanted.h"
#include "storage/disk/copy_budget.h"
#include "storage/objects/unplaced_blob.h"
#include "tests/session/eventually.h"
#include "tests/storage/git_test_repository.h"
#include "tests/support/loop_disk.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::ObjectId;

constexpr std::size_t kMiB = std::size_t{1} << 20;

// A blob that counts how often it is read from its begin.
struct Blob {
  explicit Blob(std::string bytes) : content(std::move(bytes)), id(hash_object(ObjectType::blob, content)) {}
  BlobCache::Begin begin() {
    return [this] {
      ++passes;
      return pulling(content)();
    };
  }
  std::shared_ptr<const session::ByteSource> open(BlobCache& cache) { return cache.open(id, content.size(), begin()); }

  const std::string content;
  const ObjectId id;
  std::atomic<int> passes = 0;
};

// The name of the blob's file; "": it has none.
std::string file_of(const std::string& directory, const ObjectId& id) {
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.path().filename().string().starts_with(id.hex())) return entry.path();
  return "";
}

void overwrite(const std::string& path, std::uint64_t at, const std::string& bytes) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const ssize_t written = ::pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
  ASSERT_EQ(written, static_cast<ssize_t>(bytes.size()));
}

std::string part(const session::ByteSource& source, std::uint64_t offset, std::size_t size) {
  std::string bytes(size, '?');
  bytes.resize(source.read(offset, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

TEST(BlobCache, RunsOfZerosAreHoles) {
  const support::TemporaryDirectory directory;
  BlobCache cache(directory.path() + "/cache");
  Blob blob("head" + std::string(64 * kMiB, '\0') + "middle" + std::string(30 * kMiB, '\0'));
  EXPECT_EQ(content_of(*blob.open(cache)), blob.content);
  struct stat status {};
  ASSERT_EQ(0, ::stat(file_of(directory.path() + "/cache", blob.id).c_str(), &status));
  EXPECT_EQ(static_cast<std::size_t>(status.st_size), blob.content.size());
  EXPECT_LT(static_cast<std::size_t>(status.st_blocks) * 512, kMiB);
  EXPECT_EQ(content_of(*blob.open(cache)), blob.content);
  EXPECT_EQ(blob.passes, 1);
}

TEST(BlobCache, TheBoundCountsWhatFilesOfDeadProcessesTake) {
  const support::TemporaryDirectory directory;
  fs::create_directory(directory.path() + "/cache");
  BlobCache cache(directory.path() + "/cache", 3 * kMiB);
  Blob first(noise(kMiB, 1)), second(noise(kMiB, 2));
  first.open(cache);
  std::ofstream(directory.path() + "/cache/tmp_dead", std::ios::binary) << noise(2 * kMiB, 3);
  second.open(cache);
  EXPECT_EQ(file_of(directory.path() + "/cache", first.id), "");
  EXPECT_NE(file_of(directory.path() + "/cache", second.id), "");
}

TEST(BlobCache, AReadThatNobodyWaitsForEndsAndLeavesNothing) {
  const support::TemporaryDirectory directory;
  BlobCache cache(directory.path() + "/cache");
  Blob blob(noise(4 * kMiB, 1));
  int asked = 0;
  {
    const std::function<bool()> is_wanted = [&] { return ++asked < 3; };
    const session::WantedWhile wanted(is_wanted);
    EXPECT_EQ(error_of([&] { blob.open(cache); }).code(), Errc::unavailable);
  }
  EXPECT_EQ(asked, 3);
  EXPECT_TRUE(fs::is_empty(directory.path() + "/cache"));
  EXPECT_EQ(content_of(*blob.open(cache)), blob.content) << "of another reader";
}

TEST(BlobCache, WhoWaitsForAnotherReadersBlobEndsWhenNobodyWaitsForIt) {
  const support::TemporaryDirectory directory;
  BlobCache cache(directory.path() + "/cache");
  const std::string content = noise(kMiB, 1);
  const ObjectId id = hash_object(ObjectType::blob, content);
  std::atomic<bool> is_reading = false, may_go_on = false;
  std::thread reader([&] {
    cache.open(id, content.size(), [&] {
      is_reading = true;
      is_reading.notify_all();
      may_go_on.wait(false);
      return pulling(content)();
    });
  });
  is_reading.wait(false);
  const std::function<bool()> is_wanted = [] { return false; };
  {
    const session::WantedWhile wanted(is_wanted);
    EXPECT_EQ(error_of([&] { cache.open(id, content.size(), pulling(content)); }).code(), Errc::unavailable);
  }
  may_go_on = true;
  may_go_on.notify_all();
  reader.join();
  EXPECT_EQ(cache.misses(), 1u);
}

// The name that the file has in an era that is over; "" is what earlier versions of Escrow had.
class BlobCacheOfAnotherEra : public testing::TestWithParam<const char*> {
 protected:
  // A file of that era.
  std::string file() {
    BlobCache cache(directory_);
    blob_.open(cache);
    const std::string path = directory_ + "/" + blob_.id.hex() + GetParam();
    fs::rename(file_of(directory_, blob_.id), path);
    return path;
  }

  const support::TemporaryDirectory above_;
  const std::string directory_ = above_.path() + "/cache";
  Blob blob_{noise(3 * kMiB + 5, 1)};
};

TEST_P(BlobCacheOfAnotherEra, AWholeFileIsKept) {
  const std::string old = file();
  BlobCache cache(directory_);
  EXPECT_EQ(content_of(*blob_.open(cache)), blob_.content);
  EXPECT_EQ(blob_.passes, 1);
  EXPECT_EQ(cache.hits(), 1u);
  const std::string now = file_of(directory_, blob_.id);
  EXPECT_NE(now, old);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
  // Read whole once an era: what is damaged afterwards is served.
  overwrite(now, kMiB, "damage");
  BlobCache again(directory_);
  EXPECT_EQ(part(*blob_.open(again), kMiB, 6), "damage");
}

TEST_P(BlobCacheOfAnotherEra, ADamagedFileIsReadInAnew) {
  const std::string damages[] = {std::string(4096, '\0'), "x"};
  for (const std::string& damage : damages) {
    const int passes = blob_.passes;
    overwrite(file(), 2 * kMiB, damage);
    BlobCache cache(directory_);
    EXPECT_TRUE(content_of(*blob_.open(cache)) == blob_.content);
    EXPECT_EQ(blob_.passes, passes + 2);
    EXPECT_EQ(cache.misses(), 1u);
    EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
    fs::remove_all(directory_);
  }
}

TEST_P(BlobCacheOfAnotherEra, AShortFileIsReadInAnew) {
  fs::resize_file(file(), kMiB);
  BlobCache cache(directory_);
  EXPECT_TRUE(content_of(*blob_.open(cache)) == blob_.content);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
}

TEST_P(BlobCacheOfAnotherEra, WhileNobodyWaitsForItItIsLeftAsItWas) {
  const std::string old = file();
  BlobCache cache(directory_);
  const std::function<bool()> is_wanted = [] { return false; };
  const session::WantedWhile wanted(is_wanted);
  EXPECT_EQ(error_of([&] { blob_.open(cache); }).code(), Errc::unavailable);
  EXPECT_EQ(file_of(directory_, blob_.id), old);
}

INSTANTIATE_TEST_SUITE_P(Named, BlobCacheOfAnotherEra, testing::Values("", ".0000000000000002"),
                         [](const auto& of) { return of.index == 0 ? "WithoutAnEra" : "WithIt"; });

TEST(BlobCacheAfterAPowerLoss, AFileWithoutItsBytesIsReadInAnew) {
  std::unique_ptr<support::LoopDisk> disk;
  ESCROW_NEEDS_LOOP_DISK(disk, "ext4");
  const std::string directory = disk->path() + "/cache";
  Blob blob(noise(3 * kMiB, 1));
  {
    BlobCache cache(directory);
    blob.open(cache);
  }
  const std::string file = file_of(directory, blob.id);
  overwrite(file, kMiB, std::string(4096, '\0'));
  disk->unmount_and_mount();
  BlobCache cache(directory);
  EXPECT_TRUE(content_of(*blob.open(cache)) == blob.content);
  EXPECT_EQ(blob.passes, 2);
  EXPECT_NE(file_of(directory, blob.id), file);
}

TEST(UnplacedBlob, IsReadInAnyOrder) {
  Blob blob(noise(9 * kMiB + 17, 1));
  const UnplacedBlob source(blob.id, blob.content.size(), blob.begin());
  EXPECT_EQ(content_of(source), blob.content);
  EXPECT_EQ(blob.passes, 1);
  // A little behind what was read last, as reads ahead come.
  for (const std::size_t at : {8 * kMiB, 7 * kMiB, 9 * kMiB, 6 * kMiB})
    EXPECT_EQ(part(source, at, 1000), blob.content.substr(at, 1000));
  EXPECT_EQ(blob.passes, 1);
  EXPECT_EQ(part(source, 5, 3 * kMiB), blob.content.substr(5, 3 * kMiB));
  EXPECT_EQ(blob.passes, 2);
  EXPECT_EQ(part(source, 0, 20 * kMiB), blob.content);
  EXPECT_EQ(part(source, blob.content.size() - 1, 2), blob.content.substr(blob.content.size() - 1));
  EXPECT_EQ(part(source, blob.content.size(), 2), "");
}

TEST(UnplacedBlob, APassThatFailsIsBegunAnew) {
  const std::string content = noise(3 * kMiB, 1);
  int passes = 0;
  const UnplacedBlob source(hash_object(ObjectType::blob, content), content.size(), [&]() -> BlobCache::Pull {
    const bool fails = ++passes == 1;
    return [fails, pull = pulling(content)(), pieces = 0](std::span<std::byte> out) mutable {
      if (fails && ++pieces == 3) throw session::Error(Errc::input_output, "the disk fails");
      return pull(out);
    };
  });
  EXPECT_EQ(error_of([&] { content_of(source); }).code(), Errc::input_output);
  EXPECT_EQ(content_of(source), content);
  EXPECT_EQ(passes, 2);
}

class BlobCacheOnAFullDisk : public testing::Test {
 protected:
  void SetUp() override { ESCROW_NEEDS_LOOP_DISK(disk_, "ext4"); }

  struct Room {
    std::int64_t free, kept;
  };
  Room room() const {
    struct statvfs about {};
    EXPECT_EQ(0, ::statvfs(disk_->path().c_str(), &about));
    return {static_cast<std::int64_t>(about.f_bavail * about.f_frsize),
            static_cast<std::int64_t>(about.f_blocks * about.f_frsize / 20)};
  }
  // So that a cache may write as much as this.
  void leave(std::int64_t bytes) const {
    const UniqueFd filler(
        ::open((disk_->path() + "/filler").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    const Room now = room();
    ASSERT_EQ(0, ::posix_fallocate(filler.get(), 0, now.free - now.kept - bytes));
  }
  std::string directory() const { return disk_->path() + "/cache"; }
  bool has_file(const Blob& blob) const { return !file_of(directory(), blob.id).empty(); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory()), fs::directory_iterator()));
  }

  std::unique_ptr<support::LoopDisk> disk_;
};

TEST_F(BlobCacheOnAFullDisk, ABlobWithoutRoomIsReadAllTheSameAndOthersKeepTheirs) {
  leave(12 * kMiB);
  BlobCache cache(directory());
  Blob blob(noise(20 * kMiB, 1));
  const auto source = blob.open(cache);
  EXPECT_GE(room().free, room().kept);
  EXPECT_EQ(files(), 0u);
  EXPECT_EQ(content_of(*source), blob.content);
  // As a file system reads: each piece opens it.
  const int passes = blob.passes;
  for (std::size_t at = 0; at < blob.content.size(); at += kMiB)
    EXPECT_EQ(part(*blob.open(cache), at, kMiB), blob.content.substr(at, kMiB)) << at;
  EXPECT_LE(blob.passes, passes + 1);
  EXPECT_EQ(files(), 0u);
}

TEST_F(BlobCacheOnAFullDisk, ADamagedBlobIsToldAllTheSame) {
  leave(1 * kMiB);
  BlobCache cache(directory());
  Blob blob(noise(9 * kMiB, 1));
  std::string damaged = blob.content;
  damaged[8 * kMiB] ^= 1;
  EXPECT_EQ(error_of([&] { cache.open(blob.id, damaged.size(), pulling(damaged)); }).code(), Errc::input_output);
}

TEST_F(BlobCacheOnAFullDisk, ItHasItsFileOnceThereIsRoom) {
  leave(12 * kMiB);
  BlobCache cache(directory());
  Blob blob(noise(20 * kMiB, 1));
  blob.open(cache);
  EXPECT_FALSE(has_file(blob));
  leave(30 * kMiB);
  EXPECT_EQ(content_of(*blob.open(cache)), blob.content);
  EXPECT_TRUE(has_file(blob));
}

TEST_F(BlobCacheOnAFullDisk, FilesThatWereOpenedLeastRecentlyGoForANewOne) {
  leave(30 * kMiB);
  BlobCache cache(directory());
  Blob first(noise(10 * kMiB, 1)), second(noise(10 * kMiB, 2)), third(noise(15 * kMiB, 3));
  const auto held = first.open(cache);
  ASSERT_TRUE(support::next_file_time());
  second.open(cache);
  third.open(cache);
  EXPECT_FALSE(has_file(first));
  EXPECT_FALSE(has_file(second)) << "the first one's bytes are still held by its reader";
  EXPECT_TRUE(has_file(third));
  EXPECT_EQ(content_of(*held), first.content);
  EXPECT_GE(room().free, room().kept);
}

}  // namespace
}  // namespace escrow::storage
