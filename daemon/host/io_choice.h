// How a mount's opens and bytes are to travel: what --io and --opens ask for, what a policy needs, and what `auto`
// makes of it.
// A pure function. Throws Error{bad_request} for a combination that cannot be.
#pragma once

#include <string>
#include <vector>

#include "daemon/host/mount_entries.h"
#include "daemon/host/session_request.h"
#include "fuse/mount.h"

namespace escrow::daemon {

struct IoChoice {
  fuse::IoMode mode;
  std::string reason;  // one sentence, for `escrow status`
};

// A policy refuses an open, and so does an entry of the mount table that is read-only; what others change is asked for
// anew at each: there opens must reach the daemon. Bytes may travel past it: who may read or write them was
// decided by then, and what is passed through is one file's bytes to one open of it.
IoChoice choose_io(const SessionRequest& request, bool has_policy, const session::SessionLimits& limits = {},
                   const std::vector<MountEntrySpec>& entries = {});

}  // namespace escrow::daemon
