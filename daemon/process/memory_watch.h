// Whether the kernel kills in a container because its memory is used up. Podman 4.3 with conmon 2.1.6 notes it in a
// file that it does not read, and docker knows it only when containerd's message of it overtakes that of the
// container's end. The container's cgroup goes with it, so it is watched while it is there; what happened before, its
// counter still says.
//
// The cgroup can be removed before its counter is read. On cgroup v1, an OOM event less than ten seconds old then
// counts as a kill when the kernel has killed a process anywhere since the last look: a kill that is missed would let
// unfinished work be committed. Only root is told of events. A kill right before the end of a cgroup is missed without
// them, on cgroup v2, and when the whole machine, and not the cgroup, ran out of memory.
//
// Has a thread of its own. Thread-safe. Throws nothing: what cannot be watched has not run out of memory as far as
// anybody knows. Sources: the kernel's admin-guide/cgroup-v2 (memory.events) and admin-guide/cgroup-v1/memory
// (memory.oom_control), the kernel's mm/oom_kill.c (the order of its counts), pidfd_open(2).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "daemon/process/file_descriptor.h"

namespace escrow::daemon {

class MemoryWatch {
 public:
  // Of the cgroup of this process, until that has ended.
  explicit MemoryWatch(pid_t process);
  // Of a container that is still to be started, by what this file says once it has been made: the number of its process
  // or, of docker, its id.
  enum class FileSays { process, id };
  MemoryWatch(const std::string& file, FileSays says);
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  // So far.
  bool ran_out() const noexcept { return ran_out_; }
  // Once the process has ended: in all its time.
  bool finish();

 private:
  void start(std::function<void()> action) noexcept;
  std::string await(const std::function<std::string()>& look) const;
  void watch(pid_t process);
  void watch(const std::string& counters, int life);

  const FileDescriptor stopping_;  // an eventfd
  std::atomic<bool> ran_out_ = false;
  std::thread thread_;
};

}  // namespace escrow::daemon
