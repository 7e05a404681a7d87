// The host processes of escrowd's runs: each run has one of its own, which opens the session, mounts it, runs the
// command in it and decides, as `escrow run` does. It does not depend on escrowd any more once the command is started:
// a restart of escrowd, or its death, disturbs no run. Until then the end of the channel between them ends the run.
//
// Sources: posix_spawn(3), setsid(2).
#pragma once

#include <sys/types.h>

#include <set>

#include "daemon/service/runs/run_order.h"
#include "session/base/synchronized.h"

namespace escrow::daemon {

// The argument that makes of escrowd's own program a host process: nothing for people to type.
inline constexpr const char* kRunHostArgument = "run-host";

// The whole host process, over the channel that it was started with.
int run_host();

// Escrowd's side. Thread-safe.
class RunHosts {
 public:
  // Returns when the command runs. Throws Error when there is no run: why the host could not, or {unavailable}. Its
  // session, if there is one, is rolled back by then or by the next recovery.
  void start(const RunOrder& order);
  // Takes notice of those that have ended.
  void reap() noexcept;

 private:
  session::Synchronized<std::set<pid_t>> children_;  // self-locking
};

}  // namespace escrow::daemon
