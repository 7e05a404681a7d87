// git's lock of an index: the file INDEX.lock, which every git makes before it writes the index (git's lockfile.h).
//
// A lock of Escrow's says so in its content, from the moment at which it is there. The caller has the lock under which
// the work trees of the repository follow (checkouts.h), so that a lock of Escrow's that is found is of a process that
// was killed: the same file becomes the caller's, and git is kept out without a gap. A lock of git's stays. Not
// thread-safe. Throws Error when a file cannot be made.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "storage/disk/unique_fd.h"

namespace escrow::daemon {

class IndexLock {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  static std::string path_of(const std::string& index) { return index + ".lock"; }
  // Whether a lock of that index is there, and is not Escrow's.
  static bool is_gits(const std::string& index);
  // Waits for a lock of git's until the deadline; nullopt: it is still there. `scratch`: a file of the same file system
  // that the caller alone writes; it is gone afterwards.
  static std::optional<IndexLock> take(const std::string& index, const std::string& scratch, Deadline deadline);

  IndexLock(IndexLock&& other) noexcept;
  IndexLock& operator=(IndexLock&&) = delete;
  // Removes the file, unless somebody else has made another one in its place.
  ~IndexLock();

 private:
  IndexLock(std::string path, storage::UniqueFd file);

  std::string path_;  // empty: it was given away
  storage::UniqueFd file_;  // open, so that no other file is of its inode
};

}  // namespace escrow::daemon
