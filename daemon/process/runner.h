// Runs the command of one session through a supervisor process, and takes the signals that are meant to end it.
//
// One per process, constructed while the process has a single thread and nothing open that must not be inherited;
// from then on SIGINT, SIGTERM, SIGHUP and SIGQUIT do not end this process but cancel the run; SIGCHLD is blocked. Not
// thread-safe. A command of the same user can stop its supervisor: it is continued, and one that has not ended the
// command in time is killed, with the command.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/process/child_process.h"
#include "daemon/process/command_spec.h"
#include "daemon/process/message_channel.h"

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

  // What will hold a command like `spec` is made while the caller goes on with other things; run() may still be given
  // another. Only what limits it and who it runs as counts.
  void make_ready(const CommandSpec& spec);
  // Once: runs the command, and returns when it and everything it started have ended. `started` is called when it runs.
  CommandEnd run(const CommandSpec& spec, const std::function<void()>& started = {});

  // Says that the container of the command that ended is removed, or stays for a reason. Until then the supervisor
  // removes it when this process is killed.
  void container_is_settled();

  pid_t supervisor() const noexcept { return supervisor_; }

 private:
  void block_signals();
  CommandEnd await_end(const CommandSpec& spec, const std::function<void()>& started);
  int wait_ms() const;
  void set_deadline(std::chrono::milliseconds from_now);
  void watch_supervisor();
  CommandEnd supervisor_lost();

  SignalState original_;
  FileDescriptor signals_;
  std::unique_ptr<MessageChannel> channel_;
  pid_t supervisor_ = -1;
  int cancel_signal_ = 0;
  std::vector<std::string> cgroup_paths_;
  // By when the supervisor has ended the command, unless the command keeps it from doing so.
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  bool is_given_up_ = false;
};

}  // namespace escrow::daemon
