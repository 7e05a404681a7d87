// Runs the command of one session through a supervisor process, and takes the signals that are meant to end it.
//
// One per process, constructed while the process has a single thread and nothing open that must not be inherited;
// from then on SIGINT, SIGTERM, SIGHUP and SIGQUIT do not end this process but cancel the run. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>

#include "daemon/child_process.h"
#include "daemon/command_spec.h"
#include "daemon/message_channel.h"

namespace escrow::daemon {

class Runner {
 public:
  // Forks the supervisor. Throws Error{unavailable}.
  Runner();
  // Restores the signals, and waits for the supervisor.
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // The first signal that asked to cancel, 0: none so far.
  int cancel_signal();

  // Once: runs the command, and returns when it and everything it started have ended. `started` is called when it runs.
  CommandEnd run(const CommandSpec& spec, const std::function<void()>& started = {});

  pid_t supervisor() const noexcept { return supervisor_; }

 private:
  void block_signals();
  CommandEnd await_end(const std::function<void()>& started);
  CommandEnd supervisor_lost();

  SignalState original_;
  FileDescriptor signals_;
  std::unique_ptr<MessageChannel> channel_;
  pid_t supervisor_ = -1;
  int cancel_signal_ = 0;
  std::string cgroup_path_;
};

}  // namespace escrow::daemon
