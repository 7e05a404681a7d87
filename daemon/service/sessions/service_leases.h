// Ends sessions whose lease was not renewed, or whose time is over: rolled back, with the reason lease_expired or
// timed_out. Looks four times a second, by the service's time; a session that another request has at that moment is
// looked at again. Ending one may take long (a result that is kept is made first): several are ended at once, so that
// the next one need not wait. What fails, as on a full disk, is tried again for ever, after longer and longer pauses.
//
// Leases and deadlines are in the store and hold over restarts: a lease has its whole length from the start of the
// service on, because nobody could renew it before. Thread-safe. Destroying it waits for those that are being ended.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <thread>
#include <vector>

#include "daemon/service/service_time.h"
#include "daemon/service/sessions/service_sessions.h"
#include "session/base/log.h"
#include "session/base/synchronized.h"
#include "storage/database/service_store.h"

namespace escrow::daemon {

class ServiceLeases {
 public:
  // All must outlive this.
  ServiceLeases(storage::ServiceStore& store, ServiceSessions& sessions, ServiceTime& time, session::Log& log);
  ~ServiceLeases();

 private:
  using Overdue = storage::ServiceStore::Overdue;
  // Of a session, as long as it is overdue.
  struct Trial {
    bool is_taken = false;              // in the queue, or by a worker
    std::chrono::milliseconds pause{};  // after the last failure; 0: there was none
    std::chrono::steady_clock::time_point next;
  };
  struct Shared {
    std::map<session::SessionId, Trial> trials;
    std::deque<Overdue> queue;
    bool stopping = false;
  };
  enum class Outcome { ended, not_now, failed };

  void look_until_stopped();
  void look();
  void work_until_stopped();
  Outcome end(const Overdue& overdue);
  Outcome fail(const session::SessionId& id, const std::exception& failure);
  void put_down(Trial& trial, Outcome outcome);

  storage::ServiceStore& store_;  // constant references, self-locking
  ServiceSessions& sessions_;
  ServiceTime& time_;
  session::Log& log_;
  session::Synchronized<Shared> shared_;  // self-locking; held while the store is asked, too
  std::condition_variable changed_;       // with shared_
  std::vector<std::thread> threads_;      // the first one looks, the others work
};

}  // namespace escrow::daemon
