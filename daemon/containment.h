// Everything a command starts, held together so that nothing of it survives the command: a private cgroup where the
// machine has one to give, and always the process tree below this process, which becomes a subreaper.
//
// Owned by the supervisor of a run, which is single-threaded and has no other children. Throws nothing.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "daemon/cgroup.h"

namespace escrow::daemon {

class Containment {
 public:
  enum class Method { cgroup_if_possible, process_tree };

  explicit Containment(Method method);

  // For the command, between fork and exec. Async-signal-safe.
  void enter() const noexcept;
  // Empty without a cgroup.
  std::string cgroup_path() const { return cgroup_ ? cgroup_->path() : std::string(); }

  // Ends everything, and reaps it. Returns who survived `patience`.
  std::vector<pid_t> end_all(std::chrono::milliseconds patience);

 private:
  std::unique_ptr<Cgroup> cgroup_;  // may be null
};

}  // namespace escrow::daemon
