// Everything a command starts, held together so that nothing of it survives the command: private cgroups where the
// machine has them to give, and always the process tree below this process, which becomes a subreaper. With a limit of
// memory or of processor time there is a cgroup that counts it; without one that counts processes, the limit of the
// command's user stands in (RLIMIT_NPROC in setrlimit(2)), which root does not have.
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

#include "daemon/process/cgroup.h"

namespace escrow::daemon {

inline constexpr std::uint64_t kDefaultProcesses = 4096;
inline constexpr std::uint64_t kMostProcesses = 4'194'304;  // that a kernel can have
inline constexpr std::uint64_t kLeastMemory_bytes = std::uint64_t{1} << 20, kMostMemory_bytes = std::uint64_t{1} << 60;
inline constexpr std::uint64_t kLeastMillicpus = 10, kMostMillicpus = 8'192'000;  // of as many as a kernel can have

class Containment {
 public:
  enum class Method { cgroup_if_possible, process_tree };

  struct Limits {
    std::optional<std::uint64_t> memory_bytes;
    std::uint64_t processes = 0;    // at once, threads included; 0: as many as the machine lets its user have
    std::optional<std::uint64_t> millicpus;  // thousandths of a processor's time, all its threads together
    bool needs_processes = false;   // they were asked for: without a way to limit them the command is not run
  };
  // `user` is the command's.
  Containment(Method method, const Limits& limits, uid_t user);
  explicit Containment(Method method) : Containment(method, Limits{}, 0) {}

  // Why a limit cannot be kept; empty: they are, or there were to be none.
  const std::string& failure() const noexcept { return failure_; }

  // Whether it stays true as time goes on: no limit counts what the command's user has already.
  bool can_be_made_early() const noexcept { return !users_processes_; }
  // The first process to enter a cgroup after a while waits for each processor, some 10 ms (cgroup_threadgroup_rwsem
  // and synchronize_rcu() in the kernel); those that follow soon do not. This is one that does nothing else: returns at
  // once; 0: there is none.
  pid_t send_ahead() const;
  // For the command, between fork and exec. Async-signal-safe. 0, or the errno that keeps it from its limits.
  int enter() const noexcept;
  std::vector<std::string> cgroup_paths() const;

  // Ends everything, and reaps it. Returns who survived `patience`.
  std::vector<pid_t> end_all(std::chrono::milliseconds patience);
  // Whether the kernel killed in it because the memory was used up.
  bool ran_out_of_memory() const;
  // Whether it was refused a process because there were too many.
  bool ran_out_of_processes() const;

 private:
  std::vector<std::unique_ptr<Cgroup>> cgroups_;
  std::optional<std::uint64_t> users_processes_;  // of the command's user, with those it has already
  std::string failure_;
};

}  // namespace escrow::daemon
