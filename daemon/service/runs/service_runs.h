// The runs of escrowd's API: a session, a command in it, and its output, which stays until it is freed. Thread-safe.
//
// A run and its session have one id. What was asked for is in the store; whether the run has ended, and how, is never
// stored twice: the session's record says it, and while a host process (run_host.h) holds the session the command runs.
// A run whose host was killed is rolled back by whoever looks next. A run that the caller may not see does not exist
// for them; who may see and end it are those who may see and end its session. Each run has a private directory below
// the state directory: its output and its cancel mark.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/service/runs/run_host.h"
#include "daemon/service/sessions/service_sessions.h"
#include "session/base/clock.h"
#include "storage/database/run_store.h"

namespace escrow::daemon {

class ServiceRuns {
 public:
  // All must outlive this.
  ServiceRuns(const LiveConfig& config, ServiceRepositories& repositories, ServiceSessions& sessions,
              storage::ServiceStore& store, session::Clock& clock);

  struct RunRequest {
    ServiceSessions::OpenRequest opening;
    std::vector<std::string> command;
    std::vector<std::string> environment;  // "NAME=value"
    std::vector<std::string> python_path;  // below the mount
    std::string mountpoint;                // as the command sees it; empty: the default
    std::optional<std::uint64_t> timeout_ms, grace_ms, memory_bytes, millicpus, max_processes;
    bool confined = true;
    bool network = false;
  };
  // Returns when the command runs; a second one with the same request key finds the run of the first. Throws Problem
  // and Error when there is no run; then nothing of it is left.
  api::RunResource start(const Caller& caller, const RunRequest& ordering);

  struct Filter {
    std::optional<bool> has_ended;
    ServiceSessions::Filter common;  // without a state
  };
  struct Page {
    std::vector<api::RunResource> runs;
    std::string next;  // empty: this is the last
  };
  // Oldest first.
  Page list(const Caller& caller, const Filter& filter);
  api::RunResource get(const Caller& caller, const std::string& id);
  bool has_ended(const Caller& caller, const std::string& id);
  // The caller's own that run now.
  std::vector<std::string> running(const Caller& caller);

  struct Cancelled {
    api::RunResource run;
    bool had_ended;  // as cancelled, before this
  };
  // Marks it: from now on it is rolled back, unless it had ended before. The same for a run that was cancelled is no
  // change; for one that ended otherwise Problem{session_finished}.
  Cancelled cancel(const Caller& caller, const std::string& id);
  // What is kept for it goes; its session's record stays. Problem{wrong_state} while it runs.
  api::RunResource free(const Caller& caller, const std::string& id);

  struct Output {
    std::string bytes;
    std::uint64_t next = 0;    // where the next ones are
    bool is_complete = false;  // no more will come after these
    bool is_truncated = false;  // bytes were dropped after what is kept
  };
  // `stream` is one of kOutputNames, kTraceName or kOmittedName.
  Output output(const Caller& caller, const std::string& id, const std::string& stream, std::uint64_t offset,
                std::size_t most);

  // Removes runs that a killed service had noted and not begun, and sets directories of runs aside that the store does
  // not know (run_directories.h). Before the first request.
  void forget_unborn();
  void reap() noexcept { hosts_.reap(); }

 private:
  using Run = storage::RunStore::Run;
  struct Found {
    Run run;
    std::optional<session::SessionRecord> record;  // nullopt: forgotten, or its repository cannot be read at the moment
  };
  // A run whose host was not heard of yet.
  class Starting {
   public:
    Starting(ServiceRuns& runs, const session::SessionId& id) : runs_(runs), id_(id) {
      runs_.starting_.lock()->insert(id_);
    }
    ~Starting() { runs_.starting_.lock()->erase(id_); }
    Starting(const Starting&) = delete;
    Starting& operator=(const Starting&) = delete;

   private:
    ServiceRuns& runs_;
    const session::SessionId id_;
  };
  struct User {
    std::string name;  // "user:NAME"
    unsigned uid = 0, gid = 0;
    std::optional<std::vector<std::uint32_t>> groups;  // nullopt: as the machine has them
  };

  User user_of(const Caller& caller, const std::string& committer, const ServiceSessions::OpenRequest& opening) const;
  void check_grants(const Caller& caller, const RunRequest& ordering) const;
  RunOrder order_of(const RunRequest& ordering, const Run& run, const ServiceRepositories::Entry& repository,
                    const SessionRequest& granted, const User& user) const;
  void admit(const Caller& caller, const Run& run, const ServiceSessions::OpenRequest& opening);
  void make_room(const Caller& caller);
  void drop(const session::SessionId& id);

  Found find(const Run& run);
  std::optional<session::SessionRecord> record_of(const Run& run);
  Found see(const Caller& caller, const std::string& id);
  Found may_end(const Caller& caller, const std::string& id);
  bool may_see(const Caller& caller, const Found& found);
  bool has_ended(const Found& found);
  bool is_wanted(const Caller& caller, const Filter& filter, const Run& run);
  // It has ended before its command was started: the service that was asked for it was killed meanwhile.
  bool is_unborn(const Found& found);
  std::optional<api::RunResource> find_started(const Caller& caller, const std::string& request_key);
  // As if it never had been asked for.
  void forget(const Run& run);
  api::RunResource resource(const Caller& caller, const Found& found);
  std::string directory_of(const session::SessionId& id) const;

  const LiveConfig& config_;  // constant references; self-locking, as what follows
  ServiceRepositories& repositories_;
  ServiceSessions& sessions_;
  storage::ServiceStore& facts_;
  session::Clock& clock_;
  const std::string directory_;
  storage::RunStore store_;
  RunHosts hosts_;
  session::Synchronized<std::set<session::SessionId>> starting_;  // self-locking
  struct Admission {};
  session::Synchronized<Admission> admission_;  // held while a new run is counted and noted
};

}  // namespace escrow::daemon
