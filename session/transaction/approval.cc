#include "session/transaction/approval.h"

#include "session/base/error.h"
#include "session/transaction/commit.h"
#include "session/transaction/commit_message.h"
#include "session/transaction/recovery.h"

namespace escrow::session {
namespace {

void check_review(const Review& review) {
  check_principal(review.reviewer, "the reviewer");
  check_audit_value(review.comment, "--comment");
}

[[noreturn]] void refuse_state(const SessionRecord& record, const char* verb) {
  throw Error(Errc::wrong_state, std::string("cannot ") + verb + " session " + record.id.text() + ": it is " +
                                     name_of(record.state) + ", and only one that is awaiting_approval can be");
}

// A session that waits has nothing but its lock in the directory: should somebody have removed it, it is made again.
// Where another reviewer has decided meanwhile it is gone for good, and the row says how.
std::unique_ptr<SessionDirectory> hold(const Services& services, const SessionId& id, const char* verb) {
  std::unique_ptr<SessionDirectory> held;
  try {
    held = services.directories.try_open(id);
  } catch (const Error& error) {
    const std::optional<SessionRecord> record = services.catalog.find(id);
    if (error.code() != Errc::no_session || !record) throw;
    if (record->state != State::awaiting_approval) refuse_state(*record, verb);
    return services.directories.create(id);
  }
  if (!held)
    throw Error(Errc::attached_elsewhere, "session " + id.text() + " is in use by another process; wait for it to end");
  return held;
}

// The session, held, and its row as it is now.
struct Waiting {
  std::unique_ptr<SessionDirectory> held;
  SessionRecord record;
};

Waiting take_waiting(const Services& services, const SessionId& id, const char* verb) {
  std::optional<SessionRecord> record = services.catalog.find(id);
  if (!record)
    throw Error(Errc::no_session, "there is no session " + id.text() + "; escrow sessions lists those there are");
  if (record->state != State::awaiting_approval && record->state != State::committing) refuse_state(*record, verb);
  std::unique_ptr<SessionDirectory> held = hold(services, id, verb);
  record = services.catalog.find(id);
  if (record->state == State::committing) services.log.write(LogLevel::info, decide_commit(services, *record, *held));
  if (record->state != State::awaiting_approval) refuse_state(*record, verb);
  if (record->expires && *record->expires <= services.clock.now()) {
    roll_back(services, *record, *held, {Reason::expired, std::nullopt, "recovery", std::nullopt});
    throw Error(Errc::wrong_state, std::string("cannot ") + verb + " session " + id.text() +
                                       ": its time to be approved has passed, and it was rolled back");
  }
  return {std::move(held), *std::move(record)};
}

// Whether the result is the one the session was sealed with: a reviewer of another one has to name it.
bool is_as_sealed(const SessionResult& result, const SessionRecord& record) { return result.base == record.base; }

void check_result(const SessionRecord& record, const SessionResult& result, const std::string& named) {
  const std::string id = record.result->hex();
  const std::string look = "; look at it with `escrow diff " + record.id.text() + "`, then `escrow approve " +
                           record.id.text() + " --result " + id + "`";
  if (named.empty()) {
    if (is_as_sealed(result, record)) return;
    throw Error(Errc::wrong_state, "cannot approve session " + record.id.text() + " without --result: others moved "
                                   "the branch since it was sealed, and its result is now " + id + look);
  }
  if (named.size() < kShortestResultId || named.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw Error(Errc::bad_request, "--result '" + named + "' is not a result id: give it as `escrow status` shows it, "
                                   "or at least its first " + std::to_string(kShortestResultId) + " digits");
  if (!id.starts_with(named))
    throw Error(Errc::wrong_state, "cannot approve " + named + ": the result of session " + record.id.text() + " is " +
                                       id + look);
}

}  // namespace

CommitOutcome approve_session(const Services& services, const SessionId& id, const Approval& approval) {
  check_review(approval.review);
  check_commit_message(approval.message);
  const Waiting waiting = take_waiting(services, id, "approve");
  SessionRecord record = waiting.record;
  SessionResult result = sealed_result(services.objects, record);
  result.reads = kept_reads(services, record);
  result.prefix = record.options.prefix;
  check_result(record, result, approval.result);
  record.reviewer = approval.review.reviewer;
  record.review_comment = approval.review.comment;
  record.reason = Reason::success;
  if (!approval.message.empty()) record.message = approval.message;
  return commit_result(services, record, *waiting.held, result, CommitFor::reviewer, approval.review.reviewer);
}

SessionRecord reject_session(const Services& services, const SessionId& id, const Review& review, Reason reason) {
  check_review(review);
  const Waiting waiting = take_waiting(services, id, "reject");
  SessionRecord record = waiting.record;
  record.reviewer = review.reviewer;
  record.review_comment = review.comment;
  roll_back(services, record, *waiting.held, {reason, std::nullopt, review.reviewer, std::nullopt});
  return record;
}

void refuse_waiting(const SessionRecord& record, const std::string& verb) {
  const std::string& id = record.id.text();
  throw Error(Errc::wrong_state, "cannot " + verb + " session " + id + ": it is sealed and awaits approval; `escrow "
                                 "diff " + id + "` shows its result, `escrow approve " + id + "` commits it, `escrow "
                                 "reject " + id + "` rolls it back");
}

}  // namespace escrow::session
