// A bounded cache of large blobs on disk: each is streamed in once, verified by its SHA-1, and then read by pread(2).
//
// Thread-safe, and safe between processes that share the directory: a file gets its name only when it is whole and
// verified, and readers hold descriptors, so that eviction (least recently opened first) takes nothing from them. A
// file that a power loss left without its bytes is noticed by its size and filled anew. Throws Error{input_output} for
// a blob whose bytes do not match its id, Error{no_space}.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "session/base/synchronized.h"
#include "session/interfaces/object_store.h"

namespace escrow::storage {

class BlobCache {
 public:
  static constexpr std::uint64_t kDefaultLimitBytes = std::uint64_t{10} << 30;

  using Sink = std::function<void(std::span<const std::byte>)>;
  using Producer = std::function<void(const Sink&)>;

  // The directory is made when the first blob comes.
  explicit BlobCache(std::string directory, std::uint64_t limit_bytes = kDefaultLimitBytes)
      : directory_(std::move(directory)), limit_bytes_(limit_bytes) {}

  // `produce` hands the whole content to the sink it is given; it is called only when the cache lacks the blob.
  std::shared_ptr<const session::ByteSource> open(const session::ObjectId& id, std::uint64_t size_bytes,
                                                  const Producer& produce);

  // Since it was made: opened as they were, and streamed in first.
  std::uint64_t hits() const { return hits_.load(); }
  std::uint64_t misses() const { return misses_.load(); }

 private:
  std::shared_ptr<const session::ByteSource> open_cached(const std::string& path, std::uint64_t size_bytes) const;
  void fill(const session::ObjectId& id, std::uint64_t size_bytes, const std::string& path, const Producer& produce);
  void evict(const std::string& keep) const;

  const std::string directory_;     // constant
  const std::uint64_t limit_bytes_;  // constant
  session::Synchronized<std::set<session::ObjectId>> filling_;  // self-locking: blobs a thread is streaming in
  std::condition_variable filled_;                               // with filling_
  std::atomic<std::uint64_t> hits_ = 0, misses_ = 0;
};

}  // namespace escrow::storage
