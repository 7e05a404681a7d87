#include "daemon/host/run_mountpoint.h"

#include "daemon/host/mountpoint.h"

namespace escrow::daemon {

RunMountpoint::RunMountpoint(const std::string& wanted, const std::string& git_directory,
                             const session::SessionOptions& options) {
  if (!wanted.empty()) {
    path_ = check_mountpoint(wanted, git_directory);
  } else {
    fresh_.emplace(options.uid, options.gid, git_directory + '\n' + options.branch + '\n' + options.prefix.text());
  }
}

}  // namespace escrow::daemon
