// Whether the names in one directory are on disk: what fsync(2) of the directory, shared by those who need it, has
// reached.
//
// Thread-safe. sync() returns when every name that made() told of before is on disk, also when another thread is
// already at it. One that failed may be tried again: unlike the pages of a file, a directory's blocks are not dropped.
// Either the journal of the file system is still to be written, or it has been given up, and every sync fails from then
// on (ext4: jbd2_journal_abort; XFS: a shutdown).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "session/base/synchronized.h"

namespace escrow::storage {

class SyncedNames {
 public:
  explicit SyncedNames(std::string directory) : directory_(std::move(directory)) {}

  // A name was made in the directory, or the directory itself: then its parent is synced as well.
  void made() noexcept { made_.fetch_add(1); }
  void made_directory() noexcept {
    parent_made_ = true;
    made();
  }
  void sync();
  // The number of names that are to come with a sync of the whole file system; note() it once that succeeded.
  std::uint64_t count() const noexcept { return made_.load(); }
  void note(std::uint64_t count);

 private:
  const std::string directory_;                // constant
  std::atomic<std::uint64_t> made_ = 0;
  std::atomic<bool> parent_made_ = false;      // cleared under the lock of reached_
  // Of made_. A leaf; held across the fsync, so that others wait for it.
  session::Synchronized<std::uint64_t> synced_{0};
};

}  // namespace escrow::storage
