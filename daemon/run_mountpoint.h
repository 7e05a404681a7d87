// The directory a run mounts on: the one that was asked for, or a fresh one that goes with the run. Move-only.
#pragma once

#include <sys/types.h>

#include <string>

namespace escrow::daemon {

class RunMountpoint {
 public:
  // `wanted` empty: a new directory below $XDG_RUNTIME_DIR (when `uid` is this process's user, who alone may enter it)
  // or /tmp. Else checked as every mountpoint is. Throws Error.
  RunMountpoint(const std::string& wanted, const std::string& git_directory, uid_t uid);
  // Removes a fresh one; it must not be mounted any more.
  ~RunMountpoint();
  RunMountpoint(const RunMountpoint&) = delete;
  RunMountpoint& operator=(const RunMountpoint&) = delete;

  const std::string& path() const noexcept { return path_; }
  bool is_fresh() const noexcept { return is_fresh_; }

 private:
  std::string path_;  // constant
  bool is_fresh_;     // constant
};

}  // namespace escrow::daemon
