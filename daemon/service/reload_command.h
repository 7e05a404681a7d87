// `escrowd reload`: has the service that runs with a configuration read it again.
#pragma once

#include "daemon/service/escrowd_config.h"

namespace escrow::daemon {

// Asks on the configuration's socket. Prints what came of it; an exit status (exit_status.h). Throws Error{unavailable}
// when nobody answers there.
int reload_running_service(const EscrowdConfig& config);

}  // namespace escrow::daemon
