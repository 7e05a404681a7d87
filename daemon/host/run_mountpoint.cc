#include "daemon/host/run_mountpoint.h"

#include "daemon/host/mountpoint.h"

namespace escrow::daemon {

RunMountpoint::RunMountpoint(const std::string& wanted, const std::string& git_directory,
                             const session::SessionOptions& options, bool may_have_view) {
  if (!wanted.empty()) {
    path_ = check_mountpoint(wanted, git_directory);
  } else {
    fresh_.emplace(options.uid, options.gid, git_directory + '\n' + options.branch + '\n' + options.prefix.text());
  }
  if (!may_have_view) return;
  // Caches are the repository's, so sessions of all its branches share them.
  if (wanted.empty()) fixed_.emplace(git_directory + '\n' + options.prefix.text());
  seen_at_ = fixed_ ? fixed_->path() : path_;
}

}  // namespace escrow::daemon
