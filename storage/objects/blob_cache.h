// A bounded cache of large blobs on disk: each is read in once, verified by its SHA-1, and then read by pread(2).
//
// Runs of zeros are holes. Others keep their room on the disk (copy_budget.h): files of the cache go for it, least
// recently opened first. A blob that finds no room even so is read without a file, from its begin, and what is asked
// for is handed out as it comes by: reading it forward takes as long as inflating it, and each step backward begins
// anew.
//
// A file is named `<id>.<era>`, for the era of the disk (disk_era.h) in which its bytes were last seen to match the id.
// In another era, after a power cut or an unmount, the first open() reads and hashes it again and renames it; one that
// does not match goes, and the blob is read in anew. Damage that comes later in an era is not noticed.
//
// Thread-safe, and safe between processes that share the directory: a file gets its name only when it is whole and
// verified, and readers hold descriptors, so that eviction takes nothing from them. All files together have at most
// the limit after each open(), but for the one that was opened last. Throws Error{input_output} for a blob whose bytes
// do not match its id, Error{unavailable} when the caller is gone (still_wanted.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "session/base/synchronized.h"
#include "session/interfaces/object_store.h"

namespace escrow::storage {

class BlobCache {
 public:
  static constexpr std::uint64_t kDefaultLimitBytes = std::uint64_t{10} << 30;

  // Fills its argument with the next bytes of a blob; short only at the end. One thread at a time.
  using Pull = std::function<std::size_t(std::span<std::byte>)>;
  // Begins to read the blob. A source that open() returned may call it later, from any thread.
  using Begin = std::function<Pull()>;

  // The directory is made when the first blob comes.
  explicit BlobCache(std::string directory, std::uint64_t limit_bytes = kDefaultLimitBytes)
      : directory_(std::move(directory)), limit_bytes_(limit_bytes) {}

  // `begin` is called only when the cache lacks the blob.
  std::shared_ptr<const session::ByteSource> open(const session::ObjectId& id, std::uint64_t size_bytes,
                                                  const Begin& begin);

  // Since it was made: opened as they were, and read in first.
  std::uint64_t hits() const { return hits_.load(); }
  std::uint64_t misses() const { return misses_.load(); }

 private:
  class NewFile;
  using Source = std::shared_ptr<const session::ByteSource>;
  struct Opening {
    std::set<session::ObjectId> filling;                       // blobs a thread is reading in
    std::list<std::pair<session::ObjectId, Source>> unplaced;  // most recently opened first: no room for a file
  };

  // "": the cache has no directory yet.
  std::string era_suffix() const;
  std::string path_of(const session::ObjectId& id) const { return directory_ + "/" + id.hex() + era_suffix(); }
  Source open_cached(const session::ObjectId& id, std::uint64_t size_bytes) const;
  Source open_of_another_era(const session::ObjectId& id, std::uint64_t size_bytes) const;
  Source open_unplaced(Opening& opening, const session::ObjectId& id, std::uint64_t size_bytes) const;
  Source fill(const session::ObjectId& id, std::uint64_t size_bytes, const Begin& begin) const;
  void make_room(int fd, std::uint64_t bytes, const std::string& path) const;
  void evict(const std::string& keep) const;

  const std::string directory_;     // constant
  const std::uint64_t limit_bytes_;  // constant
  mutable std::atomic<std::uint64_t> era_ = 0;  // 0: not looked at yet; constant from then on
  session::Synchronized<Opening> opening_;  // self-locking
  std::condition_variable filled_;          // with opening_
  std::atomic<std::uint64_t> hits_ = 0, misses_ = 0;
};

}  // namespace escrow::storage
