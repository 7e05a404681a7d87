// The repository's objects, read from their packs (packed_objects.h) or, where that cannot be, through libgit2; blobs
// over kLargeBlobBytes are streamed into a cache on disk.
//
// Thread-safe. Hashes are verified as content is read, so a damaged object throws Error{input_output} for itself alone.
// Recently read blobs are kept, a bounded number of bytes (recent_blobs.h).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "session/interfaces/object_store.h"
#include "storage/git/git_repository_pool.h"
#include "storage/objects/blob_cache.h"
#include "storage/objects/pack_reader.h"
#include "storage/objects/packed_objects.h"
#include "storage/objects/recent_blobs.h"

namespace escrow::storage {

// Larger blobs do not enter memory whole, but for those that git stored as a delta: it makes none of blobs that are
// larger than core.bigFileThreshold, which init sets in a repository that it makes.
inline constexpr std::uint64_t kLargeBlobBytes = std::uint64_t{8} << 20;

class GitObjectStore final : public session::ObjectReader {
 public:
  // `pool` must outlive the store.
  GitObjectStore(GitRepositoryPool& pool, std::string cache_directory,
                 std::uint64_t cache_limit_bytes = BlobCache::kDefaultLimitBytes);

  session::Tree read_tree(const session::ObjectId& id) const override;
  session::Commit read_commit(const session::ObjectId& id) const override;
  std::uint64_t blob_size(const session::ObjectId& id) const override;
  std::shared_ptr<const session::ByteSource> open_blob(const session::ObjectId& id) const override;
  bool contains(const session::ObjectId& id) const override;

  // From now on `check` is called before a tree is read, and before each piece of a large blob, by any thread, and may
  // throw, which ends a walk of trees. To be called before others use the store.
  void check_before_trees(std::function<void()> check) { check_ = std::move(check); }

  // Type and size from the object's header.
  std::pair<ObjectType, std::uint64_t> header(const session::ObjectId& id) const;
  // The whole object in memory: not for large blobs.
  RawObject read_object(const session::ObjectId& id) const;
  // A blob of any size, piece by piece, its hash not verified; in memory only when it is stored as a delta.
  void stream(const session::ObjectId& id, const std::function<void(std::span<const std::byte>)>& sink) const;
  const ObjectDirectory& directory() const noexcept { return directory_; }
  // Closes the packs that others have removed.
  void close_what_is_gone() const { directory_.close_what_is_gone(); }
  // Contents that open_blob() found in a cache, and those that it did not.
  std::pair<std::uint64_t, std::uint64_t> cache_counts() const {
    return {small_hits_.load() + cache_.hits(), small_misses_.load() + cache_.misses()};
  }

 private:
  // Also lets the directory close what is gone, when the pool has.
  GitRepositoryPool::Borrowed borrow() const;
  BlobCache::Pull pull(const session::ObjectId& id) const;
  // And the other way round.
  void close_with_directory() const;
  // What `question(odb)` returns: a code of libgit2's, GIT_ENOTFOUND where there is no such object.
  template <typename Question>
  int ask(const session::ObjectId& id, Question question) const;

  std::function<void()> check_;   // constant once others use the store; may be empty
  GitRepositoryPool& pool_;       // self-locking
  ObjectDirectory directory_;     // self-locking
  PackedObjects packed_;          // self-locking
  mutable BlobCache cache_;       // self-locking
  mutable RecentBlobs recent_;    // self-locking
  mutable std::atomic<std::uint64_t> small_hits_ = 0, small_misses_ = 0;
  mutable std::atomic<unsigned> generation_ = 0;  // of the pool's handles
  mutable std::atomic<unsigned> removals_ = 0;    // that the pool knows of
};

}  // namespace escrow::storage
