#include "daemon/service_sessions.h"

#include <algorithm>
#include <utility>

#include "api/problem.h"
#include "daemon/commit_timer.h"
#include "daemon/session_access.h"
#include "daemon/session_terms.h"
#include "daemon/session_verbs.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;
using api::SessionResource;
using session::Reason;
using session::SessionId;
using session::SessionRecord;
using session::State;

namespace {

// Whether the session has the outcome that this ending asks for.
bool has_outcome(const SessionRecord& record, const ServiceSessions::Ending& ending) {
  if (ending.reason != Reason::success) {
    return record.state == State::rolled_back && record.reason == ending.reason && record.exit_code == ending.exit_code;
  }
  return record.state != State::rolled_back || record.reason == Reason::rejected || record.reason == Reason::expired;
}

std::int64_t milliseconds(const session::Timestamp& time) { return time.seconds * 1000 + time.nanoseconds / 1'000'000; }

session::Timestamp timestamp(std::int64_t ms) {
  return {.seconds = ms / 1000, .nanoseconds = static_cast<std::uint32_t>(ms % 1000) * 1'000'000};
}

void add_terms(const storage::ServiceStore::Terms& terms, SessionResource& to) {
  to.lease_ms = terms.lease_ms;
  if (terms.lease_until_ms != 0) to.lease_expires = timestamp(terms.lease_until_ms);
  if (terms.deadline_ms != 0) to.deadline = timestamp(terms.deadline_ms);
}

}  // namespace

ServiceSessions::Turn::Turn(ServiceSessions& sessions, const SessionId& id)
    : sessions_(sessions), id_(id), is_taken_(sessions.busy_.lock()->insert(id).second) {
  if (!is_taken_) refuse_busy(id_);
}

ServiceSessions::Turn::Turn(ServiceSessions& sessions, const Found& found)
    : sessions_(sessions), id_(found.record.id), is_taken_(sessions.busy_.lock()->insert(id_).second) {
  if (!is_taken_ && !session::is_final(sessions.record_of(found).state)) refuse_busy(id_);
}

ServiceSessions::Turn::~Turn() {
  if (is_taken_) sessions_.busy_.lock()->erase(id_);
}

ServiceSessions::ServiceSessions(const EscrowdConfig& config, ServiceRepositories& repositories, HostedSessions& hosts,
                                 storage::ServiceStore& store, api::Metrics& metrics, session::Clock& clock)
    : config_(config), repositories_(repositories), hosts_(hosts), store_(store), metrics_(metrics), clock_(clock) {}

ServiceSessions::Found ServiceSessions::see(const Caller& caller, const std::string& id) {
  std::optional<Found> found = repositories_.find_session(id);
  if (!found || !caller.may_see(found->record)) {
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

SessionRecord ServiceSessions::concluded(const Found& found) {
  SessionRecord record = record_of(found);
  if (record.state != State::committing) return record;
  // One of ours whose commit failed when the branch may have moved already.
  if (hosts_.find(record.id)) {
    hosts_.let_go(record.id);
    hosts_.wait_until_gone(found.repository, record.id);
  }
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
  const Turn turn(*this, record.id);
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
  if (const std::shared_ptr<SessionHost> host = hosts_.find(found.record.id)) made.view.io = host->io();
  if (listed.record.state == State::open) add_terms(store_.terms(found.record.id), made);
  if (auto facts = store_.session(found.record.id)) {
    made.external_id = std::move(facts->external_id);
    made.labels = std::move(facts->labels);
  }
  return made;
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

session::SessionOptions ServiceSessions::options_of(const Caller& caller, const ServiceRepositories::Entry& repository,
                                                    const Opening& opening) const {
  session::SessionOptions options = opening.options;
  if (options.branch.empty()) options.branch = repository.context->repository().references().default_branch();
  options.audit.issuer = caller.principal;
  options.audit.committer = opening.committer.empty() ? caller.principal : opening.committer;
  session::check_principal(options.audit.committer, "\"run_as\"");
  if (!may_run_as(config_, caller, options.audit.committer)) {
    throw Problem(ProblemCode::forbidden, caller.principal + " has no grant to run as " + options.audit.committer,
                  {{"field", "run_as"}});
  }
  options.audit.source = "sandbox";
  options.uid = opening.uid.value_or(caller.uid);
  options.gid = opening.gid.value_or(caller.gid);
  if (!caller.is_operator && (options.uid != caller.uid || options.gid != caller.gid)) {
    const std::string field = options.uid != caller.uid ? "uid" : "gid";
    throw Problem(ProblemCode::forbidden, "only an operator may open a session for another user or group",
                  {{"field", field}});
  }
  check_terms(caller, options, opening.mount_options);
  return options;
}

SessionResource ServiceSessions::open(const Caller& caller, Opening opening) {
  if (!opening.request_key.empty()) {
    const auto before = store_.session_by_request(caller.principal, opening.request_key);
    if (before) return get(caller, before->id.text());
  }
  const ServiceRepositories::Entry repository = repositories_.find(opening.repository);
  return open_new(caller, repository, opening);
}

SessionResource ServiceSessions::open_new(const Caller& caller, const ServiceRepositories::Entry& repository,
                                          const Opening& opening) {
  const session::SessionOptions options = options_of(caller, repository, opening);
  const SessionId id = SessionId::generate();
  const Turn turn(*this, id);
  const std::int64_t now = milliseconds(clock_.now());
  const auto after = [now](std::uint64_t ms) { return ms == 0 ? 0 : now + static_cast<std::int64_t>(ms); };
  const storage::ServiceStore::Terms terms{.lease_ms = opening.lease_ms,
                                           .lease_until_ms = after(opening.lease_ms),
                                           .deadline_ms = after(opening.timeout_ms),
                                           .mount_options = opening.mount_options};
  // What the service knows of it comes first: a session that exists is then never without an owner.
  store_.add_session({.id = id,
                      .repository = repository.name,
                      .owner = caller.principal,
                      .external_id = opening.external_id,
                      .request_key = opening.request_key,
                      .message = opening.message,
                      .mountpoint = opening.mountpoint,
                      .labels = opening.labels},
                     terms);
  session::SessionManager& sessions = repository.context->sessions();
  bool is_open = false;
  try {
    std::unique_ptr<session::Session> session = sessions.open(options, opening.options.branch.empty(), id);
    is_open = true;
    if (!opening.mountpoint.empty()) hosts_.mount(repository, std::move(session), opening.mountpoint);
  } catch (...) {
    // A session that nobody was told of does not stay behind.
    if (is_open) sessions.attach(id)->rollback(Reason::not_started, {}, caller.principal, false);
    store_.forget_session(id);
    throw;
  }
  return resource({.repository = repository, .record = sessions.status(id).record});
}

// ---- Attaching and detaching.

SessionResource ServiceSessions::mount(const Caller& caller, const std::string& id, const Mounting& mounting) {
  const Found found = may_end(caller, id);
  const Turn turn(*this, found);
  const SessionRecord record = concluded(found);
  if (record.state != State::open) refuse_finished(record, "mount");
  if (const std::shared_ptr<SessionHost> host = hosts_.find(found.record.id)) {
    const bool is_the_same =
        mounting.mount_options.empty() || mounting.mount_options == store_.terms(found.record.id).mount_options;
    if (host->mountpoint() == mounting.mountpoint && is_the_same) return resource(found);
    throw Problem(ProblemCode::wrong_state, "session " + id + " is mounted on " + host->mountpoint() +
                                                "; unmount it there first");
  }
  check_terms(caller, record.options, mounting.mount_options);
  hosts_.mount(found.repository, found.repository.context->sessions().attach(found.record.id), mounting.mountpoint,
               mounting.mount_options);
  return resource(found);
}

SessionResource ServiceSessions::unmount(const Caller& caller, const std::string& id) {
  const Found found = may_end(caller, id);
  const Turn turn(*this, found);
  const SessionRecord record = concluded(found);
  if (record.state != State::open) refuse_finished(record, "unmount");
  if (std::shared_ptr<SessionHost> host = hosts_.find(found.record.id)) {
    host->handle(api::UnmountRequest{}, caller.principal, {});
    host.reset();
    hosts_.wait_until_gone(found.repository, found.record.id);
    hosts_.tidy();
    return resource(found);
  }
  const session::SessionManager::Listed now = found.repository.context->sessions().status(found.record.id);
  if (now.attachment != session::Attachment::none) {
    SessionAccess(*found.repository.context, id, caller.principal).unmount();
  }
  return resource(found);
}

// ---- Leases and deadlines.

SessionResource ServiceSessions::renew(const Caller& caller, const std::string& id, std::uint64_t lease_ms) {
  const Found found = may_end(caller, id);
  const SessionRecord record = record_of(found);
  if (record.state != State::open && record.state != State::committing) refuse_finished(record, "renew the lease of");
  if (!store_.renew_lease(found.record.id, lease_ms, milliseconds(clock_.now()))) {
    throw Problem(ProblemCode::wrong_state, "session " + id + " has no lease, or it has run out; a lease is given when "
                                            "a session is opened, by \"lease_ms\"");
  }
  return resource(found);
}

bool ServiceSessions::expire(const SessionId& id, Reason reason) {
  std::optional<Found> found = repositories_.find_session(id.text());
  if (!found) return false;  // its repository cannot be read at the moment
  const Turn turn(*this, id);
  const SessionRecord record = record_of(*found);
  if (record.state == State::committing) return false;
  if (record.state == State::open) {
    const Caller service{.principal = "escrowd"};
    std::string warning;
    try {
      end(*found, service, {.reason = reason, .exit_code = {}, .message = {}}, warning);
    } catch (const session::Error& error) {
      // A process that is none of ours has it mounted: that one is asked, and records a rollback by request.
      if (error.code() != session::Errc::attached_elsewhere) throw;
      SessionAccess(*found->repository.context, id.text(), service.principal)
          .rollback(record.options.keep_on_failure);
    }
  }
  store_.end_terms(id);
  return true;
}

// ---- Ending.

void ServiceSessions::end(const Found& found, const Caller& caller, const Ending& ending, std::string& warning) {
  const session::CommitRequest request{.message = ending.message, .exit_code = ending.exit_code,
                                       .reason = ending.reason, .by_hand = false, .who = caller.principal};
  const bool keep = found.record.options.keep_on_failure;
  const std::shared_ptr<SessionHost> host = hosts_.find(found.record.id);
  if (!host) {
    const auto session = found.repository.context->sessions().attach(found.record.id);
    if (ending.reason == Reason::success) {
      session->commit(request);
    } else {
      session->rollback(ending.reason, ending.exit_code, caller.principal, keep);
    }
    return;
  }
  if (ending.reason == Reason::success || keep) host->record_if_room_is_short();
  warning = host->seal_and_unmount();
  if (ending.reason == Reason::success) {
    host->finish_commit(request);
  } else {
    host->finish_rollback(ending.reason, ending.exit_code, caller.principal, keep);
  }
}

SessionResource ServiceSessions::finish(const Caller& caller, const std::string& id, const Ending& given) {
  const Found found = may_end(caller, id);
  const Turn turn(*this, found);
  const SessionRecord record = concluded(found);
  if (record.state != State::open) {
    if (!has_outcome(record, given)) refuse_finished(record, "finish");
    return resource(found);
  }
  Ending ending = given;
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

SessionResource ServiceSessions::commit(const Caller& caller, const std::string& id, const std::string& given) {
  const Found found = may_end(caller, id);
  const Turn turn(*this, found);
  const SessionRecord record = concluded(found);
  if (record.state != State::open) {
    if (record.state != State::committed && record.state != State::awaiting_approval) {
      refuse_finished(record, "commit");
    }
    return resource(found);
  }
  std::string message = given;
  const auto facts = store_.session(found.record.id);
  if (message.empty() && facts) message = facts->message;
  return commit_now(found, caller, message);
}

SessionResource ServiceSessions::commit_now(const Found& found, const Caller& caller, const std::string& message) {
  const std::string& id = found.record.id.text();
  CommitTimer timer(metrics_);
  api::CommitAnswer answer;
  if (const std::shared_ptr<SessionHost> host = hosts_.find(found.record.id)) {
    answer = std::get<api::CommitAnswer>(host->handle(api::CommitRequest{.message = message}, caller.principal, {}));
  } else {
    answer = SessionAccess(*found.repository.context, id, caller.principal).commit(message);
  }
  timer.end(answer.conflicts.empty() ? name_of(answer.state) : "conflict");
  if (!answer.conflicts.empty()) {
    throw Problem("session " + id + " was not committed: others changed " + std::to_string(answer.conflicts.size()) +
                      " of its paths differently; it stays open, and nothing is lost",
                  std::move(answer.conflicts));
  }
  SessionResource made = resource(found, std::move(answer.warning));
  made.view.omitted = std::move(answer.omitted);
  return made;
}

SessionResource ServiceSessions::rollback(const Caller& caller, const std::string& id, bool keep_result) {
  const Found found = may_end(caller, id);
  const Turn turn(*this, found);
  const SessionRecord record = concluded(found);
  if (session::is_final(record.state)) {
    if (record.state != State::rolled_back) refuse_finished(record, "roll back");
    return resource(found);
  }
  api::RollbackAnswer answer;
  if (const std::shared_ptr<SessionHost> host = hosts_.find(found.record.id)) {
    answer = std::get<api::RollbackAnswer>(
        host->handle(api::RollbackRequest{.keep_result = keep_result}, caller.principal, {}));
  } else {
    answer = SessionAccess(*found.repository.context, id, caller.principal).rollback(keep_result);
  }
  return resource(found, std::move(answer.warning));
}

// ---- Reviewing.

ServiceSessions::Found ServiceSessions::may_review(const Caller& caller, const std::string& id) {
  Found found = see(caller, id);
  const session::Audit& audit = found.record.options.audit;
  if (!caller.may_review()) throw Problem(ProblemCode::forbidden, caller.principal + " is no reviewer");
  if (config_.four_eyes && (caller.principal == audit.committer || caller.principal == audit.issuer)) {
    throw Problem(ProblemCode::forbidden, "session " + id + " is " + caller.principal +
                                              "'s own; somebody else is to review it (four_eyes)");
  }
  return found;
}

SessionResource ServiceSessions::approve(const Caller& caller, const std::string& id, session::Approval approval) {
  const Found found = may_review(caller, id);
  const Turn turn(*this, found);
  const SessionRecord before = concluded(found);
  if (session::is_final(before.state)) {
    const bool is_the_same = before.result && before.result->hex() == approval.result;
    if (before.state != State::committed || !is_the_same) refuse_finished(before, "approve");
    return resource(found);
  }
  approval.review.reviewer = caller.principal;
  CommitTimer timer(metrics_);
  const session::CommitOutcome outcome = found.repository.context->sessions().approve(found.record.id, approval);
  if (const auto* moved = std::get_if<session::AwaitingApproval>(&outcome)) {
    timer.end("result_moved");
    throw Problem(ProblemCode::result_moved,
                  "nothing was committed: others moved the branch since session " + id + " was sealed, and on its new "
                  "head the result is " + moved->result.hex() + "; look at it and approve that",
                  {{"result", moved->result.hex()}});
  }
  if (const auto* conflicts = std::get_if<session::Conflicts>(&outcome)) {
    timer.end("conflict");
    throw Problem("session " + id + " was not committed: others changed " + std::to_string(conflicts->paths.size()) +
                      " of its paths differently; it goes on waiting",
                  conflicts->paths);
  }
  SessionResource made = resource(found);
  timer.end(name_of(made.view.record.state));
  return made;
}

SessionResource ServiceSessions::reject(const Caller& caller, const std::string& id, const std::string& comment) {
  const Found found = may_review(caller, id);
  const Turn turn(*this, found);
  const SessionRecord before = concluded(found);
  if (session::is_final(before.state)) {
    if (before.state != State::rolled_back || before.reason != Reason::rejected) refuse_finished(before, "reject");
    return resource(found);
  }
  found.repository.context->sessions().reject(found.record.id, {.reviewer = caller.principal, .comment = comment},
                                              Reason::rejected);
  return resource(found);
}

void ServiceSessions::forget_unborn() {
  for (const storage::ServiceStore::SessionFacts& facts : store_.sessions()) {
    for (const ServiceRepositories::Entry& repository : repositories_.list()) {
      if (repository.name != facts.repository || !repository.context) continue;
      if (!repository.context->repository().catalog().find(facts.id)) store_.forget_session(facts.id);
    }
  }
}

}  // namespace escrow::daemon
