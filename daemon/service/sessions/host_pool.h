// The host processes that wait for a session: some are started ahead, so that opening one does not wait for a program
// to start, and one whose session has ended takes the next of the same repository. Thread-safe.
//
// Destroying it lets those that wait end; those that host a session do not notice.
#pragma once

#include <chrono>
#include <condition_variable>
#include <list>
#include <set>
#include <string>
#include <thread>

#include "daemon/service/host_process.h"
#include "session/base/log.h"
#include "session/base/synchronized.h"

namespace escrow::daemon {

class HostPool {
 public:
  // `argument` makes a host of this program.
  HostPool(const char* argument, session::Log& log);
  ~HostPool();

  // One that has the repository open, if there is one. It may have died while it waited. Throws Error{unavailable}.
  HostProcess take(const std::string& repository);
  // It has `repository` open and no session.
  void give_back(HostProcess host, const std::string& repository);
  // It does not do what it should, or not in time: it is killed, and has ended afterwards unless its mount keeps it.
  void end(HostProcess host) noexcept;
  // Takes notice of those that have ended.
  void reap() noexcept;

 private:
  struct Waiting {
    HostProcess process;
    std::string repository;
    std::chrono::steady_clock::time_point since;
  };
  struct Shared {
    std::list<Waiting> waiting;  // those that wait longest first
    std::string wanted;          // of which one is to be started ahead; empty: none
    std::set<pid_t> children;
    bool stopping = false;
  };
  HostProcess start();
  void keep_ready_until_stopped();
  void start_ahead(const std::string& repository) noexcept;

  const char* const argument_;  // constant
  session::Log& log_;           // constant reference, self-locking
  session::Synchronized<Shared> shared_;  // self-locking
  std::condition_variable changed_;       // with `shared_`
  std::thread keeper_;
};

}  // namespace escrow::daemon
