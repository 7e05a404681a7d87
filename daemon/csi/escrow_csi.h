// `escrow-csi`: a node plugin of Kubernetes, beside an escrowd on the same machine. Its command line, and its life
// until SIGTERM or SIGINT.
#pragma once

namespace escrow::daemon {

// The whole program; an exit status (exit_status.h).
int run_escrow_csi(int argc, char** argv);

}  // namespace escrow::daemon
