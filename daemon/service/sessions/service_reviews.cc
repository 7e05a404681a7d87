// The part of ServiceSessions that decides about sealed results.
#include <set>

#include "api/problem.h"
#include "daemon/host/config.h"
#include "daemon/service/commit_timer.h"
#include "daemon/service/sessions/service_sessions.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;
using api::SessionResource;
using session::Reason;
using session::SessionRecord;
using session::State;

namespace {

// Who had a part in what is to be reviewed. Until it was sealed, whoever is in the history wrote, discarded, updated,
// mounted or finished it; after that they have only looked.
std::set<std::string> changers_of(const SessionRecord& record, const std::vector<storage::Transition>& history) {
  const session::Audit& audit = record.options.audit;
  // Whose the files are may write them through a mount.
  std::set<std::string> changers = {audit.issuer, audit.committer, principal_of(record.options.uid)};
  for (const storage::Transition& step : history) {
    changers.insert(step.who);
    if (step.to == State::awaiting_approval) break;
  }
  return changers;
}

}  // namespace

ServiceSessions::Found ServiceSessions::may_review(const Caller& caller, const std::string& id) {
  Found found = see(caller, id);
  if (!caller.may_review()) throw Problem(ProblemCode::forbidden, caller.principal + " is no reviewer");
  if (!may(caller, GrantedVerb::review, found)) {
    throw Problem(ProblemCode::forbidden, caller.principal + " has no grant to review what goes to the branch " +
                                              found.record.options.branch + " (grants)");
  }
  if (!config_->four_eyes) return found;
  const auto history = found.repository.context->repository().history(found.record.id);
  if (changers_of(found.record, history).contains(caller.principal)) {
    throw Problem(ProblemCode::forbidden, caller.principal + " has opened or changed session " + id +
                                              "; somebody who has not is to review it (four_eyes)");
  }
  return found;
}

SessionResource ServiceSessions::approve(const Caller& caller, const std::string& id, session::Approval approval) {
  const Found found = may_review(caller, id);
  const SessionTryLock turn(*this, found);
  const SessionRecord before = concluded(found);
  if (session::is_final(before.state)) {
    const bool is_the_same = before.result && before.result->hex() == approval.result;
    if (before.state != State::committed || !is_the_same) refuse_finished(before, "approve");
    return resource(found);
  }
  wait_for_host(found, State::awaiting_approval);  // which has answered, and is just letting go of it
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
  const SessionTryLock turn(*this, found);
  const SessionRecord before = concluded(found);
  if (session::is_final(before.state)) {
    if (before.state != State::rolled_back || before.reason != Reason::rejected) refuse_finished(before, "reject");
    return resource(found);
  }
  wait_for_host(found, State::awaiting_approval);
  found.repository.context->sessions().reject(found.record.id, {.reviewer = caller.principal, .comment = comment},
                                              Reason::rejected);
  return resource(found);
}

}  // namespace escrow::daemon
