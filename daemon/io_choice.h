// How a mount's opens and bytes are to travel: what --io and --opens ask for, and what `auto` makes of it.
// A pure function. Throws Error{bad_request} for a combination that cannot be.
#pragma once

#include <string>

#include "daemon/session_arguments.h"
#include "fuse/mount.h"

namespace escrow::daemon {

struct IoChoice {
  fuse::IoMode mode;
  std::string reason;  // one sentence, for `escrow status`
};

IoChoice choose_io(const SessionArguments& arguments);

}  // namespace escrow::daemon
