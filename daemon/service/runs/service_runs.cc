#include "daemon/service/runs/service_runs.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "api/problem.h"
#include "daemon/host/cancel_mark.h"
#include "daemon/host/config.h"
#include "daemon/host/run_conclusion.h"
#include "daemon/process/output_capture.h"
#include "daemon/service/runs/run_directories.h"
#include "storage/disk/file_lookup.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;
using session::Errc;
using session::Error;
using session::SessionId;
using session::SessionRecord;
using session::State;

namespace {

constexpr std::chrono::seconds kHostEndPatience{10};  // for a host to notice that its service has gone
constexpr std::chrono::milliseconds kHostEndPause{10};
constexpr std::string_view kUserPrefix = "user:";

[[noreturn]] void forbid(const std::string& field, const std::string& why) {
  throw Problem(ProblemCode::forbidden, why, {{"field", field}});
}

}  // namespace

ServiceRuns::ServiceRuns(const LiveConfig& config, ServiceRepositories& repositories, ServiceSessions& sessions,
                         storage::ServiceStore& store, session::Clock& clock)
    : config_(config),
      repositories_(repositories),
      sessions_(sessions),
      facts_(store),
      clock_(clock),
      directory_(config->state_directory + "/runs"),
      store_(config->state_directory + "/runs.db") {
  if (::mkdir(directory_.c_str(), 0700) == 0 || errno == EEXIST) return;
  throw Error(Errc::unavailable, "cannot make the directory " + directory_ + ": " + std::strerror(errno));
}

std::string ServiceRuns::directory_of(const SessionId& id) const { return directory_ + "/" + id.text(); }

// ---- Finding.

std::optional<SessionRecord> ServiceRuns::record_of(const Run& run) {
  const ServiceRepositories::Entry repository = repositories_.find(run.repository);
  storage::Repository& stored = repository.context->repository();
  std::optional<SessionRecord> record = stored.catalog().find(run.id);
  const bool is_open = record && (record->state == State::open || record->state == State::committing);
  if (!is_open || stored.directories().is_held(run.id)) return record;
  // It has ended since, or its host has died: then recovery decides now rather than in a minute.
  record = stored.catalog().find(run.id);
  if (record && !has_ended({.run = run, .record = record})) {
    repository.context->recover();
    record = stored.catalog().find(run.id);
  }
  return record;
}

// A run outlives its record, which gc forgets, and its repository.
ServiceRuns::Found ServiceRuns::find(const Run& run) {
  try {
    return {.run = run, .record = record_of(run)};
  } catch (const Error&) {
    return {.run = run, .record = std::nullopt};
  }
}

// A commit that failed for an outside reason leaves the session open, to be committed by hand: the run has ended.
bool ServiceRuns::has_ended(const Found& found) {
  if (found.run.has_ended) return true;
  const std::string directory = directory_of(found.run.id);
  // Whatever there is of its session: what has no process does not run.
  if (!found.record) return !starting_.lock()->contains(found.run.id) && !is_conclusion_promised(directory);
  const SessionRecord& record = *found.record;
  if (record.state == State::open) return !record.last_error.empty();
  if (record.state == State::committing) return false;
  // As long as its host lives, it is about to say what was left out.
  return has_conclusion(directory) || !is_conclusion_promised(directory);
}

// A run has its directory before its session: where that is missing beside a session, it was lost, and says nothing.
bool ServiceRuns::is_unborn(const Found& found) {
  const std::string directory = directory_of(found.run.id);
  return has_ended(found) && !storage::is_there(directory + "/" + kOutputNames[0]) &&
         (storage::is_there(directory) || !found.record);
}

ServiceRuns::Found ServiceRuns::see(const Caller& caller, const std::string& id) {
  const std::optional<SessionId> parsed = SessionId::parse(id);
  const std::optional<Run> run = parsed ? store_.find(*parsed) : std::nullopt;
  if (!run || !caller.may_see_of(run->owner)) {
    throw Problem(ProblemCode::not_found, "there is no run '" + id + "' that you may see");
  }
  Found found = find(*run);
  if (!may_see(caller, found)) throw Problem(ProblemCode::not_found, "there is no run '" + id + "' that you may see");
  return found;
}

// Whose it is knows what it said; a reviewer may read what it did.
bool ServiceRuns::may_see(const Caller& caller, const Found& found) {
  if (caller.principal == found.run.owner || caller.is_operator) return true;
  const std::optional<ServiceRepositories::Session> session = repositories_.find_session(found.run.id.text());
  return session && sessions_.may_see(caller, *session);
}

ServiceRuns::Found ServiceRuns::may_end(const Caller& caller, const std::string& id) {
  Found found = see(caller, id);
  if (!caller.may_end_of(found.run.owner)) {
    throw Problem(ProblemCode::forbidden, "run " + id + " is " + found.run.owner +
                                              "'s; only they and operators may do this");
  }
  return found;
}

// ---- Starting.

// Of a committer who is a user of this machine the command is theirs, of an agent or role it is the caller's; root may
// name others by their numbers.
ServiceRuns::User ServiceRuns::user_of(const Caller& caller, const std::string& committer,
                                       const ServiceSessions::OpenRequest& opening) const {
  // The caller may have left groups that its user has.
  User user{.name = caller.principal, .uid = caller.uid, .gid = caller.gid, .groups = caller.groups};
  if (committer != caller.principal && committer.starts_with(kUserPrefix)) {
    // Being an operator is not enough to become another user of the machine.
    if (!caller.may_become_anybody() && !is_granted(*config_.now(), caller.principal, committer)) {
      forbid("committer", caller.principal + " has no grant to run commands as " + committer);
    }
    std::array<char, 16384> buffer;
    passwd entry{};
    passwd* found = nullptr;
    const std::string name = committer.substr(kUserPrefix.size());
    ::getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
    if (found == nullptr) {
      throw Problem(ProblemCode::invalid_value, "this machine has no user '" + name + "'", {{"field", "committer"}});
    }
    user = {.name = committer, .uid = found->pw_uid, .gid = found->pw_gid, .groups = {}};
  }
  const unsigned uid = opening.session.uid.value_or(user.uid), gid = opening.session.gid.value_or(user.gid);
  if (uid != user.uid || gid != user.gid) {
    if (!caller.may_become_anybody()) {
      forbid(uid != user.uid ? "uid" : "gid", "only root with the rights of the service may run commands as a user or "
                                              "group by its number; \"committer\" names a user, by a grant");
    }
    user = {.name = principal_of(uid), .uid = uid, .gid = gid, .groups = {}};
  }
  if (::geteuid() != 0 && user.uid != ::geteuid()) {
    forbid("committer", "this service does not run as root, so it can run commands as its own user only");
  }
  return user;
}

void ServiceRuns::check_grants(const Caller& caller, const RunRequest& ordering) const {
  if (!ordering.confined && !caller.is_operator) forbid("confined", "only operators may run commands unconfined");
  const bool may_use_network = caller.is_operator || has_principal(config_->host_network, caller.principal);
  if (ordering.network && !may_use_network) {
    forbid("network", caller.principal + " has no grant to the machine's network (host_network)");
  }
  if (caller.is_operator) return;
  const std::shared_ptr<const EscrowdConfig> config = config_.now();
  if (ordering.max_processes > config->max_processes) {
    forbid("max_processes", "only operators' runs may have more than " + std::to_string(config->max_processes) +
                                " processes at once (max_processes)");
  }
  if (config->max_memory_bytes && ordering.memory_bytes > config->max_memory_bytes) {
    forbid("memory_bytes", "only operators' runs may have more than " + std::to_string(*config->max_memory_bytes) +
                               " bytes of memory (max_memory_bytes)");
  }
  if (config->max_millicpus && ordering.millicpus > config->max_millicpus) {
    forbid("millicpus", "only operators' runs may have more than " + std::to_string(*config->max_millicpus) +
                            " thousandths of a processor (max_millicpus)");
  }
}

RunOrder ServiceRuns::order_of(const RunRequest& ordering, const Run& run, const ServiceRepositories::Entry& repository,
                               const SessionRequest& granted, const User& user) const {
  RunOrder order{.id = run.id};
  order.groups = user.groups;
  order.repository = repository.path;
  order.verbose = config_->verbose;
  order.session = granted;
  order.command = ordering.command;
  order.directory = directory_of(run.id);
  order.mountpoint = ordering.mountpoint;
  order.environment = ordering.environment;
  order.python_path = ordering.python_path;
  order.who = run.owner;
  if (run.timeout_ms) order.timeout_ms = static_cast<std::int64_t>(*run.timeout_ms);
  order.grace_ms = ordering.grace_ms ? static_cast<std::int64_t>(*ordering.grace_ms) : kDefaultGrace.count();
  order.limits = {.memory_bytes = run.memory_bytes,
                  .processes = run.max_processes.value_or(0),
                  .millicpus = run.millicpus,
                  .needs_processes = ordering.max_processes.has_value()};
  order.output_bytes = run.output_bytes;
  order.confined = run.confined;
  order.network = run.network;
  return order;
}

// Of those that have ended the oldest go when there are too many. What has ended is noted, so that it is not looked at
// each time.
void ServiceRuns::make_room(const Caller& caller) {
  const std::string& owner = caller.principal;
  if (config_->max_runs == 0) {
    throw Problem(ProblemCode::forbidden, "this service has no runs: max_runs of its configuration is 0");
  }
  std::size_t running = 0;
  for (const Run& run : store_.unended_of(owner)) {
    if (has_ended(find(run))) {
      store_.note_ended(run.id);
    } else {
      ++running;
    }
  }
  if (running >= config_->max_runs) {
    throw Problem(ProblemCode::unavailable, owner + " has " + std::to_string(running) +
                                                " runs already, and may have no more at once (max_runs)");
  }
  const std::optional<std::uint64_t> most = quota_of(*config_.now(), owner).runs;
  if (!caller.is_operator && most && running >= *most) {
    throw Problem(ProblemCode::quota_exceeded, owner + " may have " + std::to_string(*most) +
                                                   " runs at once, and has as many; wait for the end of one");
  }
  for (const SessionId& id : store_.ended_of(owner, config_->keep_runs)) drop(id);
}

// Noted before anything of it exists: a run that is there is never without an owner.
void ServiceRuns::admit(const Caller& caller, const Run& run, const ServiceSessions::OpenRequest& opening) {
  const auto held = admission_.lock();
  make_room(caller);
  facts_.add_session({.id = run.id,
                      .repository = run.repository,
                      .owner = run.owner,
                      .external_id = opening.external_id,
                      .request_key = opening.request_key,
                      .message = opening.session.message,
                      .mountpoint = {},
                      .labels = opening.labels});
  store_.add(run);
  const std::string directory = directory_of(run.id);
  if (::mkdir(directory.c_str(), 0700) == 0) return;
  const int error = errno;
  forget(run);
  throw Error(error == ENOSPC ? Errc::no_space : Errc::unavailable,
              "cannot make the directory " + directory + ": " + std::strerror(error));
}

// The run of a request that came before. While a service that was killed left its host behind, that takes a moment to
// notice.
std::optional<api::RunResource> ServiceRuns::find_started(const Caller& caller, const std::string& request_key) {
  if (request_key.empty()) return std::nullopt;
  const auto before = facts_.session_by_request(caller.principal, request_key);
  if (!before) return std::nullopt;
  const std::optional<Run> run = store_.find(before->id);
  const std::string output = directory_of(before->id) + "/" + kOutputNames[0];
  const auto deadline = std::chrono::steady_clock::now() + kHostEndPatience;
  while (run && ::access(output.c_str(), F_OK) != 0) {
    if (is_unborn(find(*run))) {
      forget(*run);
      return std::nullopt;
    }
    if (std::chrono::steady_clock::now() > deadline) break;
    std::this_thread::sleep_for(kHostEndPause);
  }
  return get(caller, before->id.text());
}

api::RunResource ServiceRuns::start(const Caller& caller, const RunRequest& ordering) {
  const ServiceSessions::OpenRequest& opening = ordering.opening;
  if (auto before = find_started(caller, opening.request_key)) return *std::move(before);
  sessions_.check_grant(caller, opening, true);
  const ServiceRepositories::Entry repository = repositories_.find(opening.repository);
  SessionRequest granted = sessions_.granted(caller, opening);
  const User user = user_of(caller, granted.committer, opening);
  check_grants(caller, ordering);
  granted.uid = user.uid;
  granted.gid = user.gid;
  const Run run{.id = SessionId::generate(),
                .repository = repository.name,
                .owner = caller.principal,
                .user = user.name,
                .uid = user.uid,
                .gid = user.gid,
                .command = ordering.command,
                .mountpoint = ordering.mountpoint,
                .timeout_ms = ordering.timeout_ms,
                .memory_bytes = ordering.memory_bytes ? ordering.memory_bytes : config_->max_memory_bytes,
                .millicpus = ordering.millicpus ? ordering.millicpus : config_->max_millicpus,
                .max_processes = ordering.max_processes.value_or(config_->max_processes),
                .output_bytes = config_->max_output_bytes,
                .confined = ordering.confined,
                .network = ordering.network,
                .created = clock_.now()};
  const Starting starting(*this, run.id);
  const ServiceSessions::Place place = sessions_.take_place(caller);
  admit(caller, run, opening);
  try {
    hosts_.start(order_of(ordering, run, repository, granted, user));
  } catch (...) {
    // A run that nobody was told of does not stay behind.
    find(run);
    forget(run);
    throw;
  }
  return get(caller, run.id.text());
}

// ---- Ending.

ServiceRuns::Cancelled ServiceRuns::cancel(const Caller& caller, const std::string& id) {
  const Found found = may_end(caller, id);
  const bool had_ended = has_ended(found);
  if (!had_ended) {
    mark_cancelled(directory_of(found.run.id));
  } else if (!found.record) {
    throw Problem(ProblemCode::session_finished,
                  "cannot cancel run " + id + ": it has ended, and there is no record of its session any more");
  } else if (found.record->state != State::rolled_back || found.record->reason != session::Reason::cancelled) {
    ServiceSessions::refuse_finished(*found.record, "cancel the run of");
  }
  return {.run = get(caller, id), .had_ended = had_ended};
}

api::RunResource ServiceRuns::free(const Caller& caller, const std::string& id) {
  const Found found = may_end(caller, id);
  if (!has_ended(found)) {
    throw Problem(ProblemCode::wrong_state, "run " + id + " has not ended; cancel it and wait for its end first");
  }
  api::RunResource last = resource(caller, found);
  drop(found.run.id);
  return last;
}

void ServiceRuns::drop(const SessionId& id) {
  store_.forget(id);
  std::error_code ignored;
  std::filesystem::remove_all(directory_of(id), ignored);
}

void ServiceRuns::forget(const Run& run) {
  drop(run.id);
  facts_.forget_session(run.id);
}

void ServiceRuns::forget_unborn() {
  for (const Run& run : store_.unended()) {
    if (is_unborn(find(run))) forget(run);
  }
  sort_run_directories(config_->state_directory, [&](const SessionId& id) { return store_.find(id).has_value(); },
                       config_->keep_runs);
}

}  // namespace escrow::daemon
