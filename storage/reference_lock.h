// The lock file of one reference, as git takes it (<reference>.lock, lockfile.h), which outlives no Escrow process.
//
// A process that dies between taking git's lock file and renaming it would block the branch for everybody, for ever.
// So Escrow's processes take turns under an OFD lock (fcntl(2)) on <state>/reference.lock, and write there which inode
// they are about to link as a lock file: whoever comes next finds that inode and takes it away. A lock file of git's
// is another inode, and is waited for. One object per swap; not shared between threads.
#pragma once

#include <string>

#include "session/ids.h"
#include "storage/unique_fd.h"

namespace escrow::storage {

class ReferenceLock {
 public:
  // Waits for others, up to 10 s, then throws Error{busy} naming the lock file. `value` is what land() will write.
  ReferenceLock(const std::string& git_directory, const std::string& name, const session::ObjectId& value);
  // Lets go; the reference is as it was unless it landed.
  ~ReferenceLock();
  ReferenceLock(const ReferenceLock&) = delete;
  ReferenceLock& operator=(const ReferenceLock&) = delete;

  // Renames the lock file over the reference. The content was synced before; the directory is the caller's to sync.
  void land();

 private:
  void sweep();
  void prepare(const session::ObjectId& value);
  void link_or_wait();

  const std::string state_;  // <gitdir>/escrow
  const std::string path_;   // of the reference
  UniqueFd turn_;            // holds the OFD lock, and the note of the inode
  bool held_ = false;
};

}  // namespace escrow::storage
