// Starts one command: fork, identity, working directory, signal state, exec, and why it could not be executed.
//
// For the supervisor of a run, which is single-threaded. Throws nothing. Source: execve(2), env(1) for 126 and 127.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "daemon/process/command_spec.h"
#include "daemon/process/containment.h"
#include "daemon/process/output_capture.h"
#include "daemon/process/terminal.h"

namespace escrow::daemon {

// As they were before Escrow changed them; a command inherits these.
struct SignalState {
  sigset_t mask;
  void (*pipe)(int) = SIG_DFL;  // disposition of SIGPIPE
};

struct StartedChild {
  pid_t pid = -1;      // also its process group; -1: it was not started, and `failure` says why
  CommandEnd failure;
};

// The command dies with the calling process (PR_SET_PDEATHSIG). With `foreground` its group gets the terminal.
StartedChild start_child(const CommandSpec& spec, const SignalState& signals, const Containment& containment,
                         const OutputCapture& output, const Terminal& terminal, bool foreground);

}  // namespace escrow::daemon
