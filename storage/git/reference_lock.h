// The lock file of one reference, or of packed-refs, as git takes it (<name>.lock, lockfile.h of git); it outlives no
// Escrow process.
//
// A process that dies with git's lock file in place would block the reference for everybody, for ever. So Escrow's
// processes take turns for each reference under an OFD lock (fcntl(2)), which dies with its process, and a lock file of
// theirs is one more name of a file below <state>/locks/, the marker. Whoever comes next, or recovers, finds the marker
// and takes away the lock file that is the same file. While the marker is there its inode is nobody else's, so that a
// lock file of git's is never taken for one. One object per change; not shared between threads.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "storage/disk/unique_fd.h"
#include "storage/git/shared_permissions.h"

namespace escrow::storage {

class ReferenceLock {
 public:
  static constexpr std::chrono::milliseconds kPatience{10'000};

  // `name` is below the git directory: "refs/heads/main", "packed-refs". Waits for others as long as `patience`, then
  // throws Error{busy} naming the lock file. `content`: as prepare() takes it, written before anybody is locked out.
  ReferenceLock(const std::string& git_directory, const std::string& name,
                const std::optional<std::string>& content = std::nullopt,
                std::chrono::milliseconds patience = kPatience);
  // Lets go; the file is as it was unless a content has landed.
  ~ReferenceLock();
  ReferenceLock(const ReferenceLock&) = delete;
  ReferenceLock& operator=(const ReferenceLock&) = delete;

  // What land() will put in place; on disk when it returns.
  void prepare(std::string_view content, unsigned mode = 0666);
  // Renames what was prepared over the file. The directory is the caller's to sync; the lock goes on being held.
  void land();

 private:
  friend void sweep_reference_locks(const std::string& git_directory);
  struct Sweep {};
  ReferenceLock(const std::string& git_directory, const std::string& name, Sweep);

  bool take_turn(std::chrono::milliseconds patience);
  void sweep();
  void make_marker();
  void link_or_wait(std::chrono::milliseconds patience);

  const std::string state_;     // <gitdir>/escrow
  const std::string name_;
  const std::string path_;      // of the file that is locked
  const std::string marker_, fresh_;
  const SharedPermissions permissions_;
  UniqueFd turn_;               // holds the OFD lock
  bool is_marked_ = false, is_linked_ = false, is_prepared_ = false;
};

// Takes away every lock file that a dead process of Escrow's has left.
void sweep_reference_locks(const std::string& git_directory);

}  // namespace escrow::storage
