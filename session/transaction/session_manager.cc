#include "session/transaction/session_manager.h"

#include "session/base/error.h"
#include "session/base/path_prefix.h"
#include "session/transaction/commit.h"
#include "session/transaction/forks.h"
#include "session/transaction/opening.h"
#include "session/transaction/recovery.h"
#include "session/transaction/resume.h"
#include "session/transaction/session_tree.h"

namespace escrow::session {
namespace {

Attachment attachment_of(const Services& services, const SessionRecord& record) {
  if (is_final(record.state) || record.result) return Attachment::none;
  if (services.directories.is_held(record.id)) return Attachment::mounted;
  return record.mountpoint.empty() ? Attachment::none : Attachment::lost;
}

void check_audit(const Audit& audit) {
  check_principal(audit.committer, "the committer");
  check_principal(audit.issuer, "the issuer");
  check_audit_value(audit.source, "the source");
  check_audit_value(audit.image, "the image");
  check_audit_value(audit.trigger, "the trigger");
  check_audit_value(audit.trigger_id, "the trigger id");
}

[[noreturn]] void refuse_unknown(const std::string& text) {
  throw Error(Errc::no_session, "there is no session " + text + "; escrow sessions lists those there are");
}

}  // namespace

SessionManager::SessionManager(const Services& services) : services_(services) {}

std::unique_ptr<Session> SessionManager::open(SessionOptions options, bool create_branch, const SessionId& id,
                                              const Prepare& prepare) {
  check_audit(options.audit);
  check_path_prefix(options.prefix, "the path prefix");
  if (!options.read_only) services_.references.check_target(options.branch);
  SessionRecord record{id};
  record.options = std::move(options);
  strengthen(record.options, services_.references.rule_of(record.options.branch));
  record.created = record.changed = services_.clock.now();
  look_at_branch(services_, record);
  if (!record.base && !create_branch)
    throw Error(Errc::no_branch, "there is no branch '" + record.options.branch +
                                     "' in the repository; give an existing one with --branch, or import into it");
  overlay_options(services_, record);  // refuses a prefix that is a file

  // A directory under its lock first, the row last: a recovery elsewhere never sees a fresh session unlocked, and what
  // is left when this process dies before the row has a directory that recovery finds.
  std::unique_ptr<SessionDirectory> held = services_.directories.create(record.id);
  try {
    if (record.options.isolation == Isolation::serializable) held->reads().create();
    if (prepare) prepare(held->path());
    if (record.base) services_.references.pin_fresh(record.id, record.options.branch, *record.base);
    record_open(services_, record, *held);
  } catch (...) {
    clean_up(services_, record.id, *held, false);
    throw;
  }
  return std::make_unique<Session>(services_, std::move(record), std::move(held));
}

std::unique_ptr<Session> SessionManager::fork(const SessionId& parent, const SessionOptions& narrowing,
                                              const SessionId& id, const Prepare& prepare,
                                              const std::function<void()>& fill) {
  check_audit(narrowing.audit);
  const std::optional<SessionRecord> above = services_.catalog.find(parent);
  if (!above) refuse_unknown(parent.text());
  return open_fork(services_, parent, fork_options(above->options, narrowing), id, prepare, fill);
}

std::unique_ptr<Session> SessionManager::resume(const SessionId& older, const std::string& who,
                                                const ResumeTerms& terms) {
  return resume_session(services_, older, who, terms);
}

std::unique_ptr<Session> SessionManager::open_from_staged_state(const std::string& branch, const std::string& who,
                                                                const std::function<void(StagedParts& to)>& feed,
                                                                const PrepareFor& prepare) {
  return session::open_from_staged_state(services_, branch, who, feed, prepare);
}

SessionManager::Taken SessionManager::take(const SessionId& id, const char* verb) {
  const std::optional<SessionRecord> before = services_.catalog.find(id);
  if (!before) refuse_unknown(id.text());
  if (before->state == State::awaiting_approval) refuse_waiting(*before, verb);
  const auto ended = [&](const SessionRecord& record) {
    return Error(Errc::wrong_state, std::string("cannot ") + verb + " session " + id.text() + ": it is " +
                                        name_of(record.state));
  };
  std::unique_ptr<SessionDirectory> held;
  try {
    held = services_.directories.try_open(id);
  } catch (const Error& error) {
    // Its directory goes with its end.
    const std::optional<SessionRecord> record = services_.catalog.find(id);
    if (error.code() != Errc::no_session || !record) throw;
    if (is_final(record->state)) throw ended(*record);
    if (!has_lost_directory(services_, id)) throw;
    throw Error(error.code(), std::string(error.what()) + ": somebody removed it; `escrow rollback " + id.text() +
                                  "` ends the session");
  }
  if (!held)
    throw Error(Errc::attached_elsewhere, "session " + id.text() +
                                              " is in use by another process; unmount it there, or wait for it to end");
  std::optional<SessionRecord> record = services_.catalog.find(id);
  if (!record) refuse_unknown(id.text());
  if (record->state == State::committing) services_.log.write(LogLevel::info, decide_commit(services_, *record, *held));
  if (record->state == State::awaiting_approval) refuse_waiting(*record, verb);
  if (is_final(record->state)) throw ended(*record);
  mark_open(services_, id, *held);  // the process that opened it may have died before that
  return {std::move(held), *std::move(record)};
}

std::unique_ptr<Session> SessionManager::attach(const SessionId& id) {
  Taken taken = take(id, "open");
  const std::string path = taken.held->path();
  try {
    auto session = std::make_unique<Session>(services_, std::move(taken.record), std::move(taken.held));
    session->settle();
    return session;
  } catch (const Error& error) {
    if (error.code() != Errc::damaged_repository && error.code() != Errc::input_output) throw;
    throw Error(error.code(), "session " + id.text() + " cannot be opened: " + error.what() +
                                  "; the bytes it holds are below " + path + "/staging, and `escrow rollback " +
                                  id.text() + "` gives it up");
  }
}

SessionRecord SessionManager::roll_back(const SessionId& id, Reason reason, std::optional<int> exit_code,
                                        const std::string& who, const Container& container) {
  const auto check_forks = [&](const SessionRecord& record) {
    if (const auto forks = services_.catalog.forks_of(id); reason == Reason::requested && !forks.empty())
      refuse_with_forks(record, "roll back", forks);
  };
  if (std::optional<SessionRecord> lost = services_.catalog.find(id);
      lost && lost->state == State::open && has_lost_directory(services_, id)) {
    check_forks(*lost);
    note_container(lost->options.audit, container);
    give_up_without_directory(services_, *lost, reason, exit_code, who);
    return *std::move(lost);
  }
  Taken taken = take(id, "roll back");
  check_forks(taken.record);
  note_container(taken.record.options.audit, container);
  session::roll_back(services_, taken.record, *taken.held, {reason, exit_code, who, std::nullopt});
  return std::move(taken.record);
}

CommitOutcome SessionManager::approve(const SessionId& id, const Approval& approval) {
  return approve_session(services_, id, approval);
}

SessionRecord SessionManager::reject(const SessionId& id, const Review& review, Reason reason) {
  return reject_session(services_, id, review, reason);
}

SessionId SessionManager::resolve(const std::string& text) const {
  if (const auto whole = SessionId::parse(text); whole && services_.catalog.find(*whole)) return *whole;
  if (text.empty() || text.find_first_not_of("0123456789abcdef") != std::string::npos) refuse_unknown("'" + text + "'");
  const std::vector<SessionId> found = services_.catalog.find_by_prefix(text);
  if (found.empty()) refuse_unknown(text);
  if (found.size() == 1) return found.front();
  std::string names;
  for (const SessionId& id : found) names += (names.empty() ? "" : ", ") + id.text();
  throw Error(Errc::ambiguous_session, "'" + text + "' is the beginning of several sessions: " + names +
                                           "; give more of the id");
}

SessionManager::Listed SessionManager::status(const SessionId& id) const {
  std::optional<SessionRecord> record = services_.catalog.find(id);
  if (!record) refuse_unknown(id.text());
  const Attachment attachment = attachment_of(services_, *record);
  return {std::move(*record), attachment};
}

Attachment SessionManager::attachment(const SessionRecord& record) const { return attachment_of(services_, record); }

std::vector<SessionManager::Listed> SessionManager::list() const {
  std::vector<Listed> listed;
  for (SessionRecord& record : services_.catalog.list()) {
    const Attachment attachment = attachment_of(services_, record);
    listed.push_back({std::move(record), attachment});
  }
  return listed;
}

std::vector<std::string> SessionManager::recover() {
  return recover_sessions(services_, [this](const SessionRecord& record, SessionDirectory& directory) {
    Overlay overlay(overlay_options(services_, record), services_.objects,
                    directory.staging(), directory.journal(), services_.clock, services_.log);
    settle_forks(services_, overlay, [](const std::vector<Overlay::Stale>&) {});
    const BranchRule rule = services_.references.rule_of(record.options.branch);
    std::vector<Omission> omitted;
    SessionResult result = record.parent ? whole_result(overlay, record, directory.quarantine(), omitted)
                                         : session_result(overlay, record, rule, directory.quarantine(), omitted);
    if (record.parent) result.base_tree = start_of_fork(overlay, record, directory.quarantine());
    overlay.abandon();
    return result;
  });
}

}  // namespace escrow::session
