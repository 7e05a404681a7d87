// A process of its own for what uses a mount of this process: no thread of a host may.
//
// A thread that waits for an answer from its own process's mount outlives SIGKILL: the kernel waits for the answer of
// somebody who is dead, and the connection ends only when the last thread, and with it /dev/fuse, is gone. A helper
// waits in its place. It has no descriptor but one end of a socket, and no mapping of a ring of io_uring, so it keeps
// nothing alive; it is killed with the thread that started it, and when the connection ends whatever it waits for
// fails.
//
// The work is done between fork(2) and _exit(2) of a process that may have other threads: system calls only, nothing
// that allocates, locks or throws. Not thread-safe; each thread may have helpers of its own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace escrow::fuse {

class HelperProcess {
 public:
  // How the work tells what it found: one message each, of at least two and at most kMaxMessage_bytes.
  class Report {
   public:
    explicit Report(int socket) : socket_(socket) {}
    void add(const void* bytes, std::size_t size) const noexcept;

   private:
    int socket_;
  };
  static constexpr std::size_t kMaxMessage_bytes = 8192;
  using Work = std::function<void(const Report& report)>;

  // Forks; the work waits for finish(). Throws Error{unavailable} when there is no process or descriptor to be had.
  explicit HelperProcess(const Work& work);
  // Kills it, unless it has finished.
  ~HelperProcess();
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;

  pid_t pid() const { return pid_; }

  // Lets the work begin and waits for its end. What it reported; nullopt when it was not done in time or has died.
  // Once.
  static constexpr std::chrono::milliseconds kForEver = std::chrono::milliseconds::max();
  std::optional<std::vector<std::string>> finish(std::chrono::milliseconds patience = kForEver);

 private:
  void reap(int how);

  pid_t pid_ = -1;   // 0: reaped
  int socket_ = -1;
};

}  // namespace escrow::fuse
