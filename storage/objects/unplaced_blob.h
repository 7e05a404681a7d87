// A large blob that has no file, read from its begin as often as what is asked for lies behind what was read last.
//
// Its last kKept_bytes stay in memory, so that the kernel's reads ahead may come in any order. The blob was verified by
// its SHA-1 once, by whoever made this; each pass verifies the checksum of its compressed form. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "session/base/synchronized.h"
#include "storage/objects/blob_cache.h"

namespace escrow::storage {

class UnplacedBlob final : public session::ByteSource {
 public:
  static constexpr std::size_t kPiece_bytes = std::size_t{256} << 10;
  static constexpr std::size_t kKept_bytes = 16 * kPiece_bytes;

  UnplacedBlob(const session::ObjectId& id, std::uint64_t size_bytes, BlobCache::Begin begin)
      : id_(id), size_bytes_(size_bytes), begin_(std::move(begin)) {}
  std::uint64_t size() const override { return size_bytes_; }
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override;

 private:
  struct Pass {
    BlobCache::Pull pull;                        // empty: there is none
    std::uint64_t kept_from = 0;                 // offset of the first piece
    std::deque<std::vector<std::byte>> pieces;   // that came last, each of kPiece_bytes but for the blob's last
  };
  void read_piece(Pass& pass) const;

  const session::ObjectId id_;        // constant, as the next two
  const std::uint64_t size_bytes_;
  const BlobCache::Begin begin_;
  mutable session::Synchronized<Pass> pass_;  // self-locking
};

}  // namespace escrow::storage
