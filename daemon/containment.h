// Everything a command starts, held together so that nothing of it survives the command: a private cgroup where the
// machine has one to give, and always the process tree below this process, which becomes a subreaper. With a limit of
// memory the cgroup is one that counts it.
//
// Owned by the supervisor of a run, which is single-threaded and has no other children. Throws nothing.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/cgroup.h"

namespace escrow::daemon {

class Containment {
 public:
  enum class Method { cgroup_if_possible, process_tree };

  explicit Containment(Method method, const std::optional<std::uint64_t>& memory_bytes = {});

  // Why the memory cannot be limited; empty: it is, or was not to be.
  const std::string& failure() const noexcept { return failure_; }

  // For the command, between fork and exec. Async-signal-safe. 0, or the errno that keeps it from its limit.
  int enter() const noexcept;
  // Empty without a cgroup.
  std::string cgroup_path() const { return cgroup_ ? cgroup_->path() : std::string(); }

  // Ends everything, and reaps it. Returns who survived `patience`.
  std::vector<pid_t> end_all(std::chrono::milliseconds patience);
  // Whether the kernel killed in it because the memory was used up.
  bool ran_out_of_memory() const { return cgroup_ && cgroup_->ran_out_of_memory(); }

 private:
  std::unique_ptr<Cgroup> cgroup_;  // may be null
  bool is_limited_;
  std::string failure_;
};

}  // namespace escrow::daemon
