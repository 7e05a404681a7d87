#include "daemon/host/run_mountpoint.h"

#include "daemon/host/mountpoint.h"
#include "daemon/process/fresh_mountpoint.h"

namespace escrow::daemon {

RunMountpoint::RunMountpoint(const std::string& wanted, const std::string& git_directory, uid_t uid, gid_t gid)
    : path_(wanted.empty() ? make_fresh_mountpoint(uid, gid) : check_mountpoint(wanted, git_directory)),
      is_fresh_(wanted.empty()) {}

RunMountpoint::~RunMountpoint() {
  if (is_fresh_) remove_fresh_mountpoint(path_);
}

}  // namespace escrow::daemon
