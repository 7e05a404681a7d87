// Ends sessions whose lease was not renewed, or whose time is over: rolled back, with the reason lease_expired or
// timed_out. Looks four times a second, by the wall clock; a session that another request has at that moment is looked
// at again. Leases and deadlines are in the store and hold over restarts: a lease has its whole length from the start
// of the service on, because nobody could renew it before. Thread-safe.
#pragma once

#include <condition_variable>
#include <thread>

#include "daemon/service_sessions.h"
#include "session/clock.h"
#include "session/log.h"
#include "session/synchronized.h"
#include "storage/service_store.h"

namespace escrow::daemon {

class ServiceLeases {
 public:
  // All must outlive this.
  ServiceLeases(storage::ServiceStore& store, ServiceSessions& sessions, session::Clock& clock, session::Log& log);
  ~ServiceLeases();

 private:
  void run();
  void end_overdue();

  storage::ServiceStore& store_;  // constant references, self-locking
  ServiceSessions& sessions_;
  session::Clock& clock_;
  session::Log& log_;
  session::Synchronized<bool> stopping_;
  std::condition_variable changed_;  // with stopping_
  std::thread thread_;
};

}  // namespace escrow::daemon
