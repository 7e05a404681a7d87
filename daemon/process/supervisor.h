// The process between `escrow run` and its command: starts it, watches it, ends it, and ends what it left behind.
//
// A process of its own, forked before the host has threads, descriptors of the repository or of the mount: when the
// host is killed in whatever way, the supervisor sees the end of the channel, kills everything the command started,
// removes the command's container and takes the dead mount away. Single-threaded. Job control follows the GNU C library
// manual, "Implementing a Shell".
#pragma once

#include "daemon/process/child_process.h"
#include "daemon/process/message_channel.h"

namespace escrow::daemon {

// Serves one command over `channel`. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGTSTP and SIGTTOU must be blocked.
[[noreturn]] void supervise(MessageChannel channel, const SignalState& signals);

}  // namespace escrow::daemon
