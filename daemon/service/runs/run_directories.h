// The directories of runs, <state>/runs/ID, beside what the store knows of runs.
//
// A directory whose run is unknown is no rubbish: an older runs.db was put back, perhaps, or a new one made. It is set
// aside as <state>/orphans/ID, and comes back at the start of a service whose store knows the run. Functions; for the
// one service of a state directory, before its first request.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "session/base/ids.h"

namespace escrow::daemon {

// Brings back what is known again, sets the unknown aside, but for runs that a process is in, and removes the oldest of
// those beyond `kept`. Files with other names stay. A directory that cannot be listed, moved or removed now is left to
// the next start.
void sort_run_directories(const std::string& state_directory,
                          const std::function<bool(const session::SessionId&)>& is_known, std::size_t kept);

}  // namespace escrow::daemon
