// The directory a run mounts on: the one that was asked for, or a fresh one (fresh_mountpoint.h), which goes with the
// run.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "daemon/process/fresh_mountpoint.h"
#include "session/interfaces/session_record.h"

namespace escrow::daemon {

class RunMountpoint {
 public:
  // `wanted` empty: a fresh one, where one can be had the same for all runs of the repository that see the same part of
  // the same branch. Else it is checked as every mountpoint is. Throws Error.
  RunMountpoint(const std::string& wanted, const std::string& git_directory, const session::SessionOptions& options);

  const std::string& path() const noexcept { return fresh_ ? fresh_->path() : path_; }
  bool is_fresh() const noexcept { return fresh_.has_value(); }

 private:
  std::string path_;                      // constant, as the other
  std::optional<FreshMountpoint> fresh_;
};

}  // namespace escrow::daemon
