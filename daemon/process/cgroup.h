// Private cgroups that hold a command and everything it starts, so that all of it can be killed at once, and so that
// all of it together gets a limited amount of memory, of processor time and of processes.
//
// For killing: of version 2, below the cgroup of the calling process; no controller is needed. For a limit: of version
// 2 where the controller is on for the children of that cgroup or of one above it, else of version 1. No setting of a
// cgroup that somebody else made is changed. The directory is locked (flock(2)) while its owner lives: leftovers of
// owners that were killed are found by their free lock and removed by the next one. Not thread-safe. Sources: the
// kernel's admin-guide/cgroup-v2, admin-guide/cgroup-v1/memory, admin-guide/cgroup-v1/pids and scheduler/sched-bwc.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/process/file_descriptor.h"

namespace escrow::daemon {

class Cgroup {
 public:
  struct Limits {
    std::optional<std::uint64_t> memory_bytes;  // swap included where the kernel counts it
    std::optional<std::uint64_t> processes;     // at once; threads count
    std::optional<std::uint64_t> millicpus;     // thousandths of a processor's time
  };
  // As many as it takes: each hierarchy has its own. `limits` are those that are wanted, and afterwards those of them
  // that this machine does not let this user keep. Without any limit, one for killing where there can be one.
  static std::vector<std::unique_ptr<Cgroup>> make(Limits& limits);

  // Kills what is in it, waits a moment and removes it.
  ~Cgroup();
  Cgroup(const Cgroup&) = delete;
  Cgroup& operator=(const Cgroup&) = delete;

  const std::string& path() const noexcept { return path_; }
  // A process that writes "0" to this descriptor is in the cgroup from then on, with all it starts.
  int entrance() const noexcept { return entrance_.get(); }
  bool is_limited() const noexcept { return is_limited_; }

  bool is_populated() const;
  // Whether the kernel has killed a process in it because the memory was used up.
  bool ran_out_of_memory() const;
  // How often it has refused a process because there were too many.
  std::uint64_t refused_processes() const;
  // Kills every process in it, again and again until it is empty or `patience` is over. True when it is empty.
  bool end_all(std::chrono::milliseconds patience);

 private:
  Cgroup(std::string path, FileDescriptor directory, FileDescriptor entrance);
  // nullptr where the machine does not allow it.
  static std::unique_ptr<Cgroup> create_below(const std::string& parent);
  bool limit(const std::string& file, const std::string& value);

  std::string path_;          // constant
  FileDescriptor directory_;  // constant; carries the lock
  FileDescriptor entrance_;   // constant
  bool is_limited_ = false;
};

// The file in which the kernel counts what it killed for want of memory in the cgroup of a process; empty: not known.
std::string memory_counters_of(pid_t process);
// In the cgroup of docker's container with this id, from the moment when it is made; empty: it is not where docker
// makes them unless it is told otherwise (dockerd(8), --cgroup-parent).
std::string memory_counters_of_docker(const std::string& container);
// Kills what runs in that cgroup. False: something still does, because this user may not kill it or for that long.
bool end_container_of_docker(const std::string& container, std::chrono::milliseconds patience);

// Ends and removes the cgroup at `path`, which an owner left behind: for the parent of an owner that was killed.
void remove_cgroup(const std::string& path, std::chrono::milliseconds patience);

}  // namespace escrow::daemon
