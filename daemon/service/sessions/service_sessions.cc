#include "daemon/service/sessions/service_sessions.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "api/problem.h"
#include "api/session_routes.h"
#include "daemon/host/fork_parents.h"
#include "daemon/host/kept_mounts.h"
#include "daemon/host/session_access.h"
#include "daemon/host/session_git.h"
#include "daemon/host/hidden_git.h"
#include "daemon/host/session_verbs.h"
#include "daemon/service/commit_timer.h"
#include "daemon/service/http/request_options.h"
#include "session/base/still_wanted.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;
using api::SessionResource;
using session::Reason;
using session::SessionId;
using session::SessionRecord;
using session::State;

namespace {

constexpr auto kHostPatience = std::chrono::seconds(10);
constexpr auto kSessionPause = std::chrono::milliseconds(5);
constexpr std::size_t kSettledAtOnce = 256, kSweptAtOnce = 1000;

// Whether the session has the outcome that this ending asks for.
bool has_outcome(const SessionRecord& record, const ServiceSessions::FinishRequest& ending) {
  if (ending.reason != Reason::success) {
    return record.state == State::rolled_back && record.reason == ending.reason && record.exit_code == ending.exit_code;
  }
  return record.state != State::rolled_back || record.reason == Reason::rejected || record.reason == Reason::expired ||
         (record.reason == Reason::not_started && ending.only_if_seen);
}

// What was not limited is, and what is asked for beyond is refused.
void apply_ceilings(const Quota& quota, const Caller& caller, SessionRequest& request) {
  const auto apply = [&](const std::optional<std::uint64_t>& most, std::uint64_t& asked, const char* field) {
    if (!most) return;
    if (asked > *most) {
      throw Problem(ProblemCode::forbidden,
                    caller.principal + " may have at most " + std::to_string(*most) + " there (quotas)",
                    {{"field", field}});
    }
    if (asked == 0) asked = *most;
  };
  apply(quota.staged_bytes, request.limit_staged_bytes, "limits.staged_bytes");
  apply(quota.files, request.limit_files, "limits.files");
}

void add_terms(const storage::ServiceStore::Terms& terms, const ServiceTime& time, SessionResource& to) {
  to.lease_ms = terms.lease_ms;
  if (terms.lease_until_ms != 0) to.lease_expires = time.shown_lease(terms.lease_until_ms);
  if (terms.deadline_ms != 0) to.deadline = time.shown(terms.deadline_ms);
}

}  // namespace

ServiceSessions::SessionTryLock::SessionTryLock(ServiceSessions& sessions, const SessionId& id)
    : sessions_(sessions), id_(id), is_taken_(sessions.busy_.lock()->insert(id).second) {
  if (!is_taken_) refuse_busy(id_);
}

ServiceSessions::SessionTryLock::SessionTryLock(ServiceSessions& sessions, const Found& found)
    : sessions_(sessions), id_(found.record.id), is_taken_(sessions.busy_.lock()->insert(id_).second) {
  if (!is_taken_ && !session::is_final(sessions.record_of(found).state)) refuse_busy(id_);
}

ServiceSessions::SessionTryLock::~SessionTryLock() {
  if (is_taken_) sessions_.busy_.lock()->erase(id_);
}

ServiceSessions::ServiceSessions(const LiveConfig& config, ServiceRepositories& repositories, SessionHosts& hosts,
                                 storage::ServiceStore& store, api::Metrics& metrics, session::Clock& clock,
                                 ServiceTime& time, const AllowedRoots& source_roots)
    : config_(config),
      repositories_(repositories),
      hosts_(hosts),
      store_(store),
      metrics_(metrics),
      clock_(clock),
      time_(time),
      source_roots_(source_roots) {}

ServiceSessions::Found ServiceSessions::see(const Caller& caller, const std::string& id) {
  std::optional<Found> found = repositories_.find_session(id);
  if (!found || !may_see(caller, *found)) {
    throw Problem(ProblemCode::no_session, "there is no session '" + id + "' that you may see");
  }
  return *std::move(found);
}

ServiceSessions::Found ServiceSessions::may_end(const Caller& caller, const std::string& id) {
  Found found = see(caller, id);
  if (!caller.may_end(found.record)) {
    throw Problem(ProblemCode::forbidden, "session " + id + " is " + found.record.options.audit.issuer +
                                              "'s; only they and operators may do this");
  }
  return found;
}

SessionRecord ServiceSessions::record_of(const Found& found) {
  return found.repository.context->sessions().status(found.record.id).record;
}

void ServiceSessions::wait_for_host(const Found& found, State state) {
  const session::SessionDirectories& directories = found.repository.context->repository().directories();
  const SessionId& id = found.record.id;
  const auto deadline = std::chrono::steady_clock::now() + kHostPatience;
  while (hosts_.find(id) && directories.is_held(id) && record_of(found).state == state) {
    if (std::chrono::steady_clock::now() > deadline) return;
    std::this_thread::sleep_for(kSessionPause);
  }
}

SessionRecord ServiceSessions::concluded(const Found& found) {
  SessionRecord record = record_of(found);
  if (record.state != State::committing) return record;
  // Its host concludes it, or lets go of it, when a commit has failed and the branch may have moved already.
  wait_for_host(found, State::committing);
  record = record_of(found);
  if (record.state != State::committing) return record;
  try {
    found.repository.context->sessions().attach(record.id);
  } catch (const session::Error& error) {
    if (error.code() != session::Errc::wrong_state) throw;  // else it was committed
  }
  return record_of(found);
}

SessionRecord ServiceSessions::settled(const Found& found) {
  SessionRecord record = record_of(found);
  if (record.state != State::committing) return record;
  const SessionTryLock turn(*this, record.id);
  return concluded(found);
}

SessionResource ServiceSessions::resource(const Found& found, std::string warning) {
  const session::SessionManager::Listed listed = found.repository.context->sessions().status(found.record.id);
  session::ReferenceStore& references = found.repository.context->repository().references();
  SessionResource made{.view = {.record = listed.record,
                                .attachment = listed.attachment,
                                .head = references.head(listed.record.options.branch),
                                .counts = listed.record.counts,
                                .denials = denials_of(found.repository.context->repository().catalog(),
                                                      listed.record.id)},
                       .repository = found.repository.name,
                       .external_id = {},
                       .labels = {},
                       .warning = std::move(warning),
                       .lease_ms = 0,
                       .lease_expires = {},
                       .deadline = {}};
  const bool is_under_way = listed.record.state == State::open || listed.record.state == State::committing;
  if (const auto mounted = hosts_.find(found.record.id); mounted && is_under_way) made.view.io = mounted->io;
  if (const auto later = found.repository.context->repository().catalog().resumed_as(listed.record.id); !later.empty())
    made.view.resumed_as = later.back();
  if (listed.record.state == State::open) add_terms(store_.terms(found.record.id), time_, made);
  if (auto facts = store_.session(found.record.id)) {
    made.external_id = std::move(facts->external_id);
    made.labels = std::move(facts->labels);
  }
  return made;
}

void ServiceSessions::remark(const Found& found, const Caller& caller, const std::string& what) {
  found.repository.context->repository().catalog().remark(found.record.id, clock_.now(), caller.principal, what);
}

void ServiceSessions::refuse_busy(const SessionId& id) {
  throw Problem(ProblemCode::busy, "another request on session " + id.text() + " is under way; try again");
}

void ServiceSessions::refuse_finished(const SessionRecord& record, const std::string& verb) {
  if (record.state == State::committing) refuse_busy(record.id);
  throw Problem(ProblemCode::session_finished,
                "cannot " + verb + " session " + record.id.text() + ": it is " + name_of(record.state) + " (" +
                    name_of(record.reason) + ") already",
                {{"state", name_of(record.state)}, {"reason", name_of(record.reason)}});
}

// ---- Opening.

SessionRequest ServiceSessions::granted(const Caller& caller, const OpenRequest& opening) const {
  SessionRequest request = opening.session;
  if (request.issuer.empty()) request.issuer = caller.principal;
  if (request.committer.empty()) request.committer = caller.principal;
  if (!may_run_as(config_, caller, request.committer)) {
    throw Problem(ProblemCode::forbidden, caller.principal + " has no grant to run as " + request.committer,
                  {{"field", "committer"}});
  }
  request.uid = request.uid.value_or(caller.uid);
  request.gid = request.gid.value_or(caller.gid);
  if (!caller.is_operator && (request.uid != caller.uid || request.gid != caller.gid)) {
    throw Problem(ProblemCode::forbidden, "only an operator may open a session for another user or group",
                  {{"field", request.uid != caller.uid ? "uid" : "gid"}});
  }
  if (!caller.is_operator) apply_ceilings(quota_of(*config_.now(), caller.principal), caller, request);
  check_terms(caller, GuardTerms(request), opening.mount_options);
  check_mounts(caller, opening.repository, request);
  return request;
}

ServiceSessions::Place::~Place() {
  if (sessions_ == nullptr) return;
  auto opening = sessions_->opening_.lock();
  if (--(*opening)[principal_] == 0) opening->erase(principal_);
}

ServiceSessions::Place ServiceSessions::take_place(const Caller& caller) {
  const std::optional<std::uint64_t> most = quota_of(*config_.now(), caller.principal).sessions;
  if (caller.is_operator || !most) return {};
  auto opening = opening_.lock();
  std::uint64_t count = (*opening)[caller.principal];
  for (const ServiceRepositories::Entry& repository : repositories_.list()) {
    if (!repository.context || count >= *most) continue;
    count += repository.context->repository()
                 .sessions({.issuer = caller.principal, .has_ended = false, .limit = *most - count})
                 .size();
  }
  if (count >= *most) {
    if ((*opening)[caller.principal] == 0) opening->erase(caller.principal);
    throw Problem(ProblemCode::quota_exceeded, caller.principal + " may have " + std::to_string(*most) +
                                                   " sessions open at once, and has as many; end one first");
  }
  ++(*opening)[caller.principal];
  return Place(*this, caller.principal);
}

// On a full disk an opening may fail, and what the service knows of the session cannot be taken back.
bool ServiceSessions::failed_to_open(const storage::ServiceStore::SessionFacts& facts) const {
  storage::Repository& repository = repositories_.find(facts.repository).context->repository();
  if (const auto record = repository.catalog().find(facts.id)) return record->reason == Reason::not_started;
  // A service that is killed while it opens a session may leave its directory without a record.
  if (!facts.is_settled || !repository.has_directory(facts.id)) return true;
  throw session::Error(session::Errc::exists,
                       "this request opened session " + facts.id.text() + " already, which the repository's catalog " +
                           "does not know; put back the catalog that does");
}

SessionResource ServiceSessions::open(const Caller& caller, OpenRequest opening) {
  if (!opening.request_key.empty()) {
    const auto before = store_.session_by_request(caller.principal, opening.request_key);
    if (before && !failed_to_open(*before)) return get(caller, before->id.text());
    if (before) store_.forget_session(before->id);
  }
  check_grant(caller, opening, false);
  const ServiceRepositories::Entry repository = repositories_.find(opening.repository);
  return open_new(caller, repository, opening);
}

SessionResource ServiceSessions::open_new(const Caller& caller, const ServiceRepositories::Entry& repository,
                                          const OpenRequest& opening) {
  const SessionRequest request = granted(caller, opening);
  const session::SessionOptions options =
      session_options(request, repository.context->repository().references(), "sandbox");
  std::optional<GitTerms> git =
      git_terms(request.git, false, options, repository.context->repository(), repository.path);
  if (git) git->objects.clear();
  const Place place = take_place(caller);
  const SessionId id = SessionId::generate();
  const SessionTryLock turn(*this, id);
  const auto end = [](std::int64_t now_ms, std::uint64_t ms) { return ms == 0 ? 0 : now_ms + std::int64_t(ms); };
  const storage::ServiceStore::Terms terms{.lease_ms = opening.lease_ms,
                                           .lease_until_ms = end(time_.lease_now_ms(), opening.lease_ms),
                                           .deadline_ms = end(time_.now_ms(), opening.timeout_ms),
                                           .mount_options = opening.mount_options};
  const std::string hand = hand_over_api(caller.principal);
  // What the service knows of it comes first: a session that exists is then never without an owner.
  store_.add_session({.id = id,
                      .repository = repository.name,
                      .owner = caller.principal,
                      .external_id = opening.external_id,
                      .request_key = opening.request_key,
                      .message = opening.session.message,
                      .mountpoint = opening.mountpoint,
                      .hand = hand,
                      .labels = opening.labels},
                     terms);
  session::SessionManager& sessions = repository.context->sessions();
  bool is_open = false;
  try {
    sessions.open(options, opening.session.branch.empty(), id,
                  preparation_of(request, git, options, repository.context->repository()));
    is_open = true;
    if (!opening.mountpoint.empty())
      hosts_.mount(repository, id, opening.mountpoint, {.hand = hand, .shows_entries = true});
  } catch (...) {
    // A session that nobody was told of does not stay behind.
    if (is_open) sessions.roll_back(id, Reason::not_started, {}, caller.principal);
    store_.forget_session(id);
    throw;
  }
  return resource({.repository = repository, .record = sessions.status(id).record});
}

// ---- Attaching and detaching.

SessionResource ServiceSessions::mount(const Caller& caller, const std::string& id, const Mounting& mounting) {
  const Found found = may_end(caller, id);
  const SessionTryLock turn(*this, found);
  const SessionRecord record = concluded(found);
  if (record.state != State::open) refuse_finished(record, "mount");
  session::SessionManager& sessions = found.repository.context->sessions();
  if (const auto mounted = hosts_.find(found.record.id);
      mounted && sessions.status(found.record.id).attachment == session::Attachment::mounted) {
    const bool is_the_same =
        !mounting.mount_options || mounting.mount_options == store_.terms(found.record.id).mount_options;
    if (mounted->mountpoint == mounting.mountpoint && is_the_same && mounting.shown_git.empty()) return resource(found);
    throw Problem(ProblemCode::wrong_state, "session " + id + " is mounted on " + mounted->mountpoint +
                                                "; unmount it there first");
  }
  check_terms(caller, GuardTerms(record.options), mounting.mount_options.value_or(""));
  sessions.attach(found.record.id);  // or it says who has it
  remark(found, caller, "mounted it");
  hosts_.mount(found.repository, found.record.id, mounting.mountpoint,
               {.hand = hand_over_api(caller.principal), .shown = mounting.shown_git}, mounting.mount_options);
  return resource(found);
}

SessionResource ServiceSessions::unmount(const Caller& caller, const std::string& id) {
  const Found found = may_end(caller, id);
  const SessionTryLock turn(*this, found);
  const SessionRecord record = concluded(found);
  if (record.state != State::open) refuse_finished(record, "unmount");
  const session::SessionManager::Listed now = found.repository.context->sessions().status(found.record.id);
  if (now.attachment != session::Attachment::none) {
    SessionAccess(*found.repository.context, id, caller.principal).unmount();
  }
  hosts_.forget(found.record.id);
  return resource(found);
}

// ---- Leases and deadlines.

SessionResource ServiceSessions::renew(const Caller& caller, const std::string& id, std::uint64_t lease_ms) {
  const Found found = may_end(caller, id);
  const SessionRecord record = record_of(found);
  if (record.state != State::open && record.state != State::committing) refuse_finished(record, "renew the lease of");
  if (!store_.renew_lease(found.record.id, lease_ms, time_.lease_now_ms())) {
    throw Problem(ProblemCode::wrong_state, "session " + id + " has no lease, or it has run out; a lease is given when "
                                            "a session is opened, by \"lease_ms\"");
  }
  return resource(found);
}

bool ServiceSessions::expire(const SessionId& id, Reason reason) {
  std::optional<Found> found = repositories_.find_session(id.text());
  if (!found) return false;  // its repository cannot be read at the moment
  const SessionTryLock turn(*this, id);
  const SessionRecord record = record_of(*found);
  if (record.state == State::committing) return false;
  if (record.state == State::open) {
    const Caller service{.principal = "escrowd"};
    std::string warning;
    try {
      end(*found, service, {.reason = reason, .exit_code = {}, .message = {}}, warning);
    } catch (const session::Error& error) {
      // A command runs in it, whose end is to decide: it is cancelled, which records a rollback by request.
      if (error.code() != session::Errc::attached_elsewhere) throw;
      SessionAccess(*found->repository.context, id.text(), service.principal)
          .rollback(record.options.keep_on_failure);
    }
  }
  store_.end_terms(id);
  return true;
}

// ---- Ending.

void ServiceSessions::end(const Found& found, const Caller& caller, const FinishRequest& ending, std::string& warning) {
  warning = SessionAccess(*found.repository.context, found.record.id.text(), caller.principal)
                .finish({.reason = ending.reason,
                         .exit_code = ending.exit_code,
                         .message = ending.message,
                         .keep_result = found.record.options.keep_on_failure,
                         .image = ending.image,
                         .trigger_id = {},
                         .only_if_seen = ending.only_if_seen});
  if (ending.reason == Reason::success) return;
  const session::WantedAlways wanted;
  try {
    roll_back_forks(*found.repository.context, found.record.id, caller.principal);
  } catch (const session::Error& error) {
    // The session has ended all the same.
    warning += (warning.empty() ? "" : "; ") + std::string("its forks stay open: ") + error.what();
  }
}

SessionResource ServiceSessions::finish(const Caller& caller, const std::string& id, const FinishRequest& given) {
  const Found found = may_end(caller, id);
  const SessionTryLock turn(*this, found);
  const SessionRecord record = concluded(found);
  if (record.state != State::open) {
    if (!has_outcome(record, given)) refuse_finished(record, "finish");
    return resource(found);
  }
  if (given.reason == Reason::success) check_commit(caller, found);
  FinishRequest ending = given;
  const auto facts = store_.session(found.record.id);
  if (ending.message.empty() && facts) ending.message = facts->message;
  std::string warning;
  std::optional<CommitTimer> timer;
  if (ending.reason == Reason::success) timer.emplace(metrics_);
  end(found, caller, ending, warning);
  SessionResource made = resource(found, std::move(warning));
  if (timer) timer->end(made.view.record.conflicts.empty() ? name_of(made.view.record.state) : "conflict");
  return made;
}

SessionResource ServiceSessions::commit(const Caller& caller, const std::string& id,
                                        const api::CommitRequest& given) {
  const Found found = may_end(caller, id);
  const SessionTryLock turn(*this, found);
  const SessionRecord record = concluded(found);
  if (record.state != State::open) {
    if (record.state != State::committed && record.state != State::awaiting_approval) {
      refuse_finished(record, "commit");
    }
    return resource(found);
  }
  check_commit(caller, found);
  api::CommitRequest wanted = given;
  const auto facts = store_.session(found.record.id);
  if (wanted.message.empty() && facts) wanted.message = facts->message;
  return commit_now(found, caller, wanted);
}

SessionResource ServiceSessions::commit_now(const Found& found, const Caller& caller,
                                            const api::CommitRequest& wanted) {
  const std::string& id = found.record.id.text();
  CommitTimer timer(metrics_);
  api::CommitAnswer answer = SessionAccess(*found.repository.context, id, caller.principal).commit(wanted);
  timer.end(answer.conflicts.empty() ? name_of(answer.state) : "conflict");
  if (!answer.conflicts.empty()) throw Problem(api::conflict_problem(id, std::move(answer.conflicts)));
  SessionResource made = resource(found, std::move(answer.warning));
  made.view.omitted = std::move(answer.omitted);
  return made;
}

SessionResource ServiceSessions::rollback(const Caller& caller, const std::string& id, bool keep_result) {
  const Found found = may_end(caller, id);
  const SessionTryLock turn(*this, found);
  const SessionRecord record = concluded(found);
  if (session::is_final(record.state)) {
    if (record.state != State::rolled_back) refuse_finished(record, "roll back");
    return resource(found);
  }
  api::RollbackAnswer answer = SessionAccess(*found.repository.context, id, caller.principal).rollback(keep_result);
  return resource(found, std::move(answer.warning));
}

// ---- Keeping house.

std::optional<ServiceSessions::Trace> ServiceSessions::trace_of(const storage::ServiceStore::SessionFacts& facts) {
  // Not by find(), which tries to open what cannot be used, once for each session.
  for (const ServiceRepositories::Entry& entry : repositories_.list()) {
    if (entry.name != facts.repository || !entry.context) continue;
    storage::Repository& repository = entry.context->repository();
    try {
      Trace trace{.record = repository.catalog().find(facts.id)};
      if (trace.record) return trace;
      trace.has_directory = repository.has_directory(facts.id);
      const std::optional<std::uint64_t> kept_for_s = config_->retention.sessions_s;
      trace.kept_for_s =
          kept_for_s ? static_cast<std::int64_t>(*kept_for_s) : repository.audit_retention().count();
      return trace;
    } catch (const session::Error&) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

void ServiceSessions::forget_unborn() {
  std::string after;
  for (std::size_t found = kSettledAtOnce; found == kSettledAtOnce;) {
    const auto page = store_.unsettled(after, kSettledAtOnce);
    std::vector<SessionId> born, unborn;
    for (const storage::ServiceStore::SessionFacts& facts : page) {
      const std::optional<Trace> trace = trace_of(facts);
      if (trace && trace->record) born.push_back(facts.id);
      if (trace && !trace->record && !trace->has_directory) unborn.push_back(facts.id);
    }
    found = page.size();
    if (found > 0) after = page.back().id.text();
    store_.settle(born);
    store_.forget_sessions(unborn);
  }
}

void ServiceSessions::keep_house() {
  std::string after;
  for (std::size_t found = kSettledAtOnce; found == kSettledAtOnce;) {
    const auto page = store_.unsettled(after, kSettledAtOnce);
    std::vector<SessionId> born;
    for (const storage::ServiceStore::SessionFacts& facts : page) {
      const std::optional<Trace> trace = trace_of(facts);
      if (trace && trace->record) born.push_back(facts.id);
    }
    store_.settle(born);
    found = page.size();
    if (found > 0) after = page.back().id.text();
  }
  forget_records_that_are_gone();
}

void ServiceSessions::forget_records_that_are_gone() {
  auto swept = swept_.lock();
  const auto page = store_.settled(*swept, kSweptAtOnce);
  const std::int64_t now_s = clock_.now().seconds;
  std::vector<SessionId> forgotten;
  std::vector<std::pair<SessionId, std::int64_t>> ends_s;
  for (const storage::ServiceStore::SessionFacts& facts : page) {
    const std::optional<Trace> trace = trace_of(facts);
    if (!trace || trace->has_directory) continue;
    const std::optional<SessionRecord>& record = trace->record;
    if (record && !session::is_final(record->state)) continue;
    std::int64_t ended_s = facts.ended_s;
    if (ended_s == 0) ended_s = record ? record->changed.seconds : now_s;
    if (!record && now_s - ended_s >= trace->kept_for_s) {
      forgotten.push_back(facts.id);
    } else if (facts.ended_s == 0) {
      ends_s.emplace_back(facts.id, ended_s);
    }
  }
  store_.note_ends(ends_s);
  store_.forget_sessions(forgotten);
  *swept = page.size() == kSweptAtOnce ? page.back().id.text() : "";
}

}  // namespace escrow::daemon
