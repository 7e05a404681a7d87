// A directory to mount on that is made for one run and goes with it. It lies below a directory of its own that only the
// run's user may enter: a mount that root makes is open to everybody who reaches it, and the repository may be private.
//
// Runs of one key have the same path, one after the other, because build tools write it into what they make. The run
// that makes the directory locks it (flock(2)), and only the holder of the lock of the directory that is at the path
// removes it: not a supervisor of the run before that comes late, nor a run that has just lost the path to another. If
// the path is taken, the next of a few others of the key is used, and then a random one.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "daemon/process/file_descriptor.h"

namespace escrow::daemon {

// Not thread-safe.
class FreshMountpoint {
 public:
  // Below $XDG_RUNTIME_DIR (when `uid` is this process's user, who alone may enter it) or /tmp.
  // Throws Error{unavailable}.
  FreshMountpoint(uid_t uid, gid_t gid, const std::string& key);
  // Removes it; it must not be mounted any more.
  ~FreshMountpoint();
  FreshMountpoint(const FreshMountpoint&) = delete;
  FreshMountpoint& operator=(const FreshMountpoint&) = delete;

  const std::string& path() const noexcept { return path_; }

 private:
  bool take(const std::string& closed, uid_t uid, gid_t gid);

  std::string path_;
  FileDescriptor lock_;
};

// $XDG_RUNTIME_DIR, where only this process's user may enter it and `uid` is that user; else /tmp.
std::string base_directory(uid_t uid);
// Six letters and digits, for the name of a file: of one key always the same.
std::string name_of_key(std::string_view key);

// Removes one whose owner is gone, of a run that was killed as well: empty directories, and only such as are named so.
// It is not mounted. No state; thread-safe.
void remove_fresh_mountpoint(const std::string& path) noexcept;

}  // namespace escrow::daemon
