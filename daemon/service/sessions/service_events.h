// What happens to the sessions and branches of the registered repositories, for clients that follow it: GET /v1/events.
//
// Nobody has to report anything: events are derived from what is durable, each repository's catalog and its branches,
// so that they come whoever did it (`escrow run`, git push) and also for what happened while no escrowd was running. A
// thread waits for the kernel to say that something changed (repository_watch.h), reads what is new, and keeps it with
// how far it has read, in one transaction (event_log.h): nothing is told twice or left out. Usually within a quarter of
// a second; denials once a second, one event for each session. Moves of a branch that come faster are told as one.
// Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "api/http_message.h"
#include "daemon/process/file_descriptor.h"
#include "daemon/service/caller.h"
#include "daemon/service/repository_watch.h"
#include "daemon/service/service_repositories.h"
#include "session/base/clock.h"
#include "session/base/log.h"
#include "session/base/synchronized.h"
#include "storage/database/event_log.h"

namespace escrow::daemon {

class ServiceEvents {
 public:
  // All must outlive this. Throws Error{unavailable}.
  ServiceEvents(storage::EventLog& log, ServiceRepositories& repositories, session::Clock& clock,
                session::Log& messages);
  ~ServiceEvents();

  // A repository that was just registered is followed from here on, one that was unregistered no more.
  void follow_repositories();

  struct Wanted {
    std::string repository, session;            // empty: all
    std::optional<std::int64_t> last_event_id;  // nullopt: from now on
  };
  // Server-sent events (the HTML standard, section 9.2), without an end. What was dropped since `last_event_id`, or
  // because the client was too slow, is said by an event "gap". A caller is told of sessions, branches and paths that
  // they may see, by the configuration at that moment.
  // It ends when `may_go_on` says no.
  api::Stream stream(const LiveConfig& config, const Caller& caller, const Wanted& wanted,
                     std::function<bool()> may_go_on) const;

 private:
  using Entry = ServiceRepositories::Entry;
  using Events = std::vector<storage::EventLog::Event>;
  using Positions = std::map<std::string, std::string>;  // of sources, as EventLog has them
  // Of one round over one repository.
  struct Round {
    Events events;
    Positions positions;
  };
  // Of a repository that is followed.
  struct Followed {
    std::map<std::string, std::string> heads;  // that were told, by branch
    std::int64_t transition = 0, denial = 0;   // numbers that were told
  };
  using All = std::map<std::string, Followed>;  // by name of the repository

  void run();
  void adopt(const Entry& repository, All& all);
  void collect(const std::map<std::string, RepositoryWatch::Changed>& changed, bool with_denials);
  void collect_from(const Entry& repository, Followed& followed, const RepositoryWatch::Changed& changed,
                    bool with_denials);
  void read_transitions(const Entry& repository, Followed& next, Round& round) const;
  void read_denials(const Entry& repository, Followed& next, Round& round) const;
  void read_branches(const Entry& repository, Followed& next, const RepositoryWatch::Changed& changed,
                     Round& round) const;

  storage::EventLog& log_;  // constant references, self-locking
  ServiceRepositories& repositories_;
  session::Clock& clock_;
  session::Log& messages_;
  const FileDescriptor stop_;
  struct Shared {
    All followed;
    RepositoryWatch watch;
    std::set<std::string> unread;      // repositories of which any branch may have moved untold
    std::set<std::string> complained;  // repositories that could not be read, each said once
  };
  session::Synchronized<Shared> shared_;  // held for a round
  std::thread thread_;
};

}  // namespace escrow::daemon
