// The blobs that were read last, in memory.
//
// The kernel keeps what it has read of a file, so a small blob is seldom asked for twice: few of them are kept. A blob
// that takes several requests to read is kept longer, or it would be inflated for each of them. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>

#include "session/base/synchronized.h"
#include "session/interfaces/object_store.h"

namespace escrow::storage {

class RecentBlobs {
 public:
  // The kernel asks for a file of this length at once, in its first read ahead.
  static constexpr std::uint64_t kOneRequestBytes = std::uint64_t{64} << 10;
  static constexpr std::uint64_t kSmallBytes = std::uint64_t{4} << 20;
  static constexpr std::uint64_t kLargeBytes = std::uint64_t{28} << 20;

  std::shared_ptr<const session::ByteSource> find(const session::ObjectId& id) const;
  void keep(const session::ObjectId& id, const std::shared_ptr<const session::ByteSource>& blob);

 private:
  struct Blobs {
    using Entry = std::pair<session::ObjectId, std::shared_ptr<const session::ByteSource>>;
    std::list<Entry> recent;  // newest first
    std::unordered_map<session::ObjectId, std::list<Entry>::iterator> by_id;
    std::uint64_t bytes = 0;
  };
  mutable session::Synchronized<std::array<Blobs, 2>> blobs_;  // self-locking; small ones and large ones
};

}  // namespace escrow::storage
