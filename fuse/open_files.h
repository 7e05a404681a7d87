// The files that are open, on a mount whose opens reach this process, and how their bytes travel.
//
// Owned by a mount. Thread-safe. With passthrough the first open of a file decides for all that follow until the last
// is released: through the kernel to the staging file when that holds all bytes, else through the page cache and here.
// The kernel wants it so: both at once, or two backing files for one inode, are EIO (fs/fuse/iomode.c). What is counted
// here is released after the kernel has let go, so a count of 0 here is one there. An open may wait for the end of a
// commit, which asks for open_for_writing() meanwhile and opens those files itself: no lock is held while a file is
// opened. Throws what FileSystem::open throws.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "session/base/synchronized.h"
#include "session/interfaces/file_system.h"

struct fuse_session;

namespace escrow::fuse {

class OpenFiles {
 public:
  // `file_system` must outlive it.
  explicit OpenFiles(session::FileSystem& file_system) : file_system_(file_system) {}

  // From here on files may be passed through. Before the first open; `session` must outlive every call.
  void pass_through(fuse_session* session) { session_ = session; }

  // Nodes that are open for writing now, and not passed through; a cached file that is mapped is still open. Only these
  // can have dirty pages.
  std::vector<session::NodeId> open_for_writing();
  bool may_have_dirty_pages(session::NodeId node);

  // The backing id of the file to name in the reply; 0: none. Each open needs its release().
  int open(session::NodeId node, session::OpenIntent intent);
  void release(session::NodeId node, bool write) noexcept;
  // The mount has ended: what was not released will not be.
  void release_all() noexcept;

 private:
  struct File {
    std::uint64_t users = 0;                 // opens and releases under way, too
    std::uint64_t readers = 0, writers = 0;  // opens that were answered
    std::optional<int> backing_id;           // once decided; 0: not passed through

    bool is_passed_through() const { return backing_id.value_or(0) != 0; }
    bool may_have_dirty_pages() const { return writers > 0 && !is_passed_through(); }
  };
  using Files = std::unordered_map<session::NodeId, File>;
  static constexpr std::size_t kShards = 16;

  session::Synchronized<Files>& shard_of(session::NodeId node) { return shards_[node.value % kShards]; }
  std::vector<std::pair<session::NodeId, File>> all();
  void leave(session::NodeId node) noexcept;
  std::optional<int> try_open(session::NodeId node, session::OpenIntent intent);
  void close(session::NodeId node, session::OpenIntent intent) noexcept;

  session::FileSystem& file_system_;                           // constant
  fuse_session* session_ = nullptr;                            // constant while there are opens; null: all is cached
  std::array<session::Synchronized<Files>, kShards> shards_;  // self-locking
};

}  // namespace escrow::fuse
