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

// What a session's policies may have to refuse. Nothing without any.
struct PolicyNeeds {
  bool is_there = false;
  bool opens = false;     // of a file that can be seen
  bool listings = false;  // of a directory that can be seen, or of the root
};
// `texts` were checked; `prefix` is the path of the mount's root in the repository.
PolicyNeeds needs_of_policies(const std::vector<std::string>& texts, const std::string& prefix);

// A policy may refuse an open, and so does an entry of the mount table that is read-only; what others change is asked
// for anew at each: there opens must reach the daemon. Bytes may travel past it: who may read or write them was decided
// by then, and what is passed through is one file's bytes to one open of it.
IoChoice choose_io(const SessionRequest& request, const PolicyNeeds& policy, const session::SessionLimits& limits = {},
                   const std::vector<MountEntrySpec>& entries = {});

}  // namespace escrow::daemon
