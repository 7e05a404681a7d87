// The files that are open, on a mount whose opens reach this process, and how their bytes travel.
//
// Owned by a mount. Thread-safe. With passthrough the first open of a file decides for all that follow until the last
// is released: through the kernel to the staging file when that holds all bytes, else through the page cache and here.
// The kernel wants it so: both at once, or two backing files for one inode, are EIO (fs/fuse/iomode.c). What is counted
// here is released after the kernel has let go, so a count of 0 here is one there. Throws what FileSystem::open throws.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fuse/libfuse.h"
#include "session/file_system.h"
#include "session/synchronized.h"

namespace escrow::fuse {

class OpenFiles {
 public:
  // `file_system` must outlive it.
  explicit OpenFiles(session::FileSystem& file_system) : file_system_(file_system) {}

  // From here on files may be passed through. Before the first open; `session` must outlive every call.
  void pass_through(fuse_session* session) { session_ = session; }

  // Nodes that are open for writing now; a cached file that is mapped is still open. Only these can have dirty pages.
  std::vector<session::NodeId> open_for_writing();

  // The backing id of the file to name in the reply; 0: none. Each open needs its release().
  int open(session::NodeId node, session::OpenIntent intent);
  void release(session::NodeId node, bool write) noexcept;
  // The mount has ended: what was not released will not be.
  void release_all() noexcept;

 private:
  struct File {
    std::uint64_t readers = 0, writers = 0;  // opens
    int backing_id = 0;                      // 0: not passed through
  };
  // A file's own lock is held while its first open is decided.
  struct Slot {
    std::uint64_t users = 0;  // opens, also those under way
    std::shared_ptr<session::Synchronized<File>> file;
  };
  using Slots = std::unordered_map<session::NodeId, Slot>;
  static constexpr std::size_t kShards = 16;

  session::Synchronized<Slots>& shard_of(session::NodeId node) { return shards_[node.value % kShards]; }
  std::vector<std::pair<session::NodeId, File>> all();
  void leave(session::NodeId node) noexcept;
  int open(File& file, session::NodeId node, session::OpenIntent intent);
  int decide(session::NodeId node, session::OpenIntent intent);
  void close(session::NodeId node, session::OpenIntent intent) noexcept;

  session::FileSystem& file_system_;                           // constant
  fuse_session* session_ = nullptr;                            // constant while there are opens; null: all is cached
  std::array<session::Synchronized<Slots>, kShards> shards_;  // self-locking
};

}  // namespace escrow::fuse
