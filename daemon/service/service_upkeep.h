// What the service does by itself, on a thread of its own: it forgets events and answers to requests with a key when
// their time has come, and cleans up each repository as often as the configuration says, one after the other, in a
// process of its own (upkeep_process.h). As a repository's first turn comes at a moment of its own, and the next ones
// are counted from there, not all are due at once.
//
// When a repository was cleaned up is kept: a restart changes no turn. A new configuration counts within a second. A
// failure is logged and counted, and tried again later. Destroying it breaks off what is under way, without harm.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "api/metrics.h"
#include "daemon/process/shutdown_deadline.h"
#include "daemon/service/escrowd_config.h"
#include "daemon/service/service_repositories.h"
#include "daemon/service/service_time.h"
#include "session/base/log.h"
#include "storage/database/event_log.h"
#include "storage/database/service_store.h"

namespace escrow::daemon {

class ServiceUpkeep {
 public:
  struct Parts {
    const LiveConfig& config;
    ServiceRepositories& repositories;
    storage::ServiceStore& store;
    storage::EventLog& events;
    const ServiceTime& time;
    api::Metrics& metrics;
    session::Log& log;
  };
  // All parts must outlive this.
  explicit ServiceUpkeep(const Parts& parts);
  ~ServiceUpkeep();

 private:
  using Entry = ServiceRepositories::Entry;

  void run();
  bool is_stopped_within(std::chrono::milliseconds time);
  void forget_old(const EscrowdConfig& config);
  void clean_up_next(const EscrowdConfig& config);
  std::optional<std::int64_t> due_ms(const EscrowdConfig& config, const std::string& repository);
  void clean_up(const EscrowdConfig& config, const Entry& repository);

  const Parts parts_;          // constant, self-locking
  ShutdownDeadline stopping_;  // self-locking
  // Of the thread, as the next.
  std::map<std::string, storage::ServiceStore::GcMark> marks_;  // by repository
  std::map<std::string, std::int64_t> failed_ms_;               // the same, when it was last
  bool has_complained_ = false;
  std::thread thread_;
};

}  // namespace escrow::daemon
