// How often the kernel has looked up each node, and has not forgotten it yet.
//
// Owned by a mount. Thread-safe: the first lookup of a node calls FileSystem::retain and the last forget calls
// FileSystem::release, in that order for each node, under the lock of the node's shard. The root is never counted.
// Source: fuse_lowlevel.h, "forget".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "session/base/synchronized.h"
#include "session/interfaces/file_system.h"

namespace escrow::fuse {

class InodeTable {
 public:
  // `file_system` must outlive the table.
  explicit InodeTable(session::FileSystem& file_system) : file_system_(file_system) {}

  // Throws what retain throws; the node is then not counted.
  void looked_up(session::NodeId node);
  void forget(session::NodeId node, std::uint64_t lookups) noexcept;
  // The kernel has let go of everything: an unmount sends no forget for each node.
  void forget_all() noexcept;
  bool holds(session::NodeId node);  // the root always
  std::size_t size();

 private:
  static constexpr std::size_t kShards = 16;
  using Counts = std::unordered_map<session::NodeId, std::uint64_t>;

  // A node that could not be released stays until the session ends: nobody could be told.
  void release(session::NodeId node) noexcept;
  session::Synchronized<Counts>& shard_of(session::NodeId node) { return shards_[node.value % kShards]; }

  session::FileSystem& file_system_;                            // constant
  std::array<session::Synchronized<Counts>, kShards> shards_;  // self-locking
};

}  // namespace escrow::fuse
