// Whether the kernel kills in a container because its memory is used up, for runtimes that do not tell. The container's
// cgroup goes with it, so it is watched while it is there; what happened before, its counter still says.
//
// Has a thread of its own. Thread-safe. Throws nothing: what cannot be watched has not run out of memory as far as
// anybody knows. Sources: the kernel's admin-guide/cgroup-v2 (memory.events) and admin-guide/cgroup-v1/memory
// (memory.oom_control), pidfd_open(2).
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
  // Of the process whose number will be in this file, by the time it is started.
  explicit MemoryWatch(const std::string& pid_file);
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  // So far.
  bool ran_out() const noexcept { return ran_out_; }
  // Once the process has ended: in all its time.
  bool finish();

 private:
  void start(std::function<void()> action) noexcept;
  pid_t await_process(const std::string& pid_file) const;
  void watch(pid_t process);

  const FileDescriptor stopping_;  // an eventfd
  std::atomic<bool> ran_out_ = false;
  std::thread thread_;
};

}  // namespace escrow::daemon
