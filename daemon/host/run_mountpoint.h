// The directory a run mounts on: the one that was asked for, or a fresh one (fresh_mountpoint.h), which goes with the
// run.
#pragma once

#include <sys/types.h>

#include <string>

namespace escrow::daemon {

class RunMountpoint {
 public:
  // `wanted` empty: a fresh one. Else it is checked as every mountpoint is. Throws Error.
  RunMountpoint(const std::string& wanted, const std::string& git_directory, uid_t uid, gid_t gid);
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
