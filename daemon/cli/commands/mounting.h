// Mounting a session that another command has just opened, as `escrow mount DIR --session ID` does it.
#pragma once

#include <string>

#include "daemon/host/global_options.h"
#include "session/base/ids.h"

namespace escrow::daemon {

// Throws what is against this directory as a mountpoint, an absolute path.
void check_place_to_mount(const GlobalOptions& options, const std::string& mountpoint);

// With the default options of a mount; `options` and `mountpoint` have absolute paths. Forks: no thread may exist.
void mount_in_background(const GlobalOptions& options, const session::SessionId& id, const std::string& mountpoint);

}  // namespace escrow::daemon
