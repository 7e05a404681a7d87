// Where the session of a run is: the directory it is mounted on, which was asked for or is a fresh one
// (fresh_mountpoint.h) and goes with the run, and the path at which the command sees it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "daemon/process/fresh_mountpoint.h"
#include "daemon/process/run_view.h"
#include "session/interfaces/session_record.h"

namespace escrow::daemon {

class RunMountpoint {
 public:
  // `wanted` empty: a fresh one, where one can be had the same for all runs of the repository that see the same part of
  // the same branch. Else it is checked as every mountpoint is. `may_have_view`: the command gets a view of its own
  // (run_view.h), if the path for it can be had. Throws Error.
  RunMountpoint(const std::string& wanted, const std::string& git_directory, const session::SessionOptions& options,
                bool may_have_view);

  const std::string& path() const noexcept { return fresh_ ? fresh_->path() : path_; }
  bool is_fresh() const noexcept { return fresh_.has_value(); }
  // CommandSpec::seen_at. Empty: the command sees the machine's mounts.
  const std::string& seen_at() const noexcept { return seen_at_; }

 private:
  std::string path_, seen_at_;            // constant, as the others
  std::optional<FixedPath> fixed_;
  std::optional<FreshMountpoint> fresh_;
};

}  // namespace escrow::daemon
