#include "daemon/host/checked_out_references.h"

#include <utility>

#include "session/base/error.h"

namespace escrow::daemon {

using session::ObjectId;
using session::SessionId;

CheckedOutReferences::CheckedOutReferences(session::ReferenceStore& inner, const Checkouts* checkouts,
                                           std::optional<std::string> work_tree)
    : inner_(inner), checkouts_(checkouts), work_tree_(std::move(work_tree)) {}

std::string CheckedOutReferences::default_branch() const {
  if (!work_tree_) return inner_.default_branch();
  if (const auto branch = checkouts_->branch_of(*work_tree_)) return *branch;
  throw session::Error(session::Errc::wrong_state, "the work tree " + *work_tree_ +
                                                       " is on no branch (its HEAD is detached); check out a branch "
                                                       "there, or give one with --branch");
}

// Asked each time: work trees come while a session is open.
bool CheckedOutReferences::takes_along() const { return checkouts_ != nullptr && checkouts_->may_be_any(); }

void CheckedOutReferences::check_target(const std::string& branch) const {
  try {
    inner_.check_target(branch);
  } catch (const session::Error& error) {
    if (!takes_along() || error.code() != session::Errc::wrong_state) throw;
  }
}

bool CheckedOutReferences::move_through(const std::string& branch, const std::optional<ObjectId>& expected,
                                        const std::vector<Move>& moves) {
  if (!takes_along()) {
    inner_.check_target(branch);
    return inner_.move_through(branch, expected, moves);
  }
  std::unique_ptr<Checkouts::Move> move;
  try {
    move = checkouts_->prepare(branch, expected, moves.back().to);
  } catch (const session::Error& error) {
    // A commit of the user's that it waited for: only what is not committed now is in the way.
    if (error.code() == session::Errc::wrong_state && inner_.head(branch) != expected) return false;
    throw;
  }
  const bool has_moved = inner_.move_through(branch, expected, moves);  // where it throws, ~Move looks
  if (move && has_moved) move->follow();
  if (move && !has_moved) move->has_not_moved();
  const std::vector<std::string> followed = move ? move->git_directories() : std::vector<std::string>();
  move.reset();
  if (has_moved) checkouts_->look_again(branch, followed);
  return has_moved;
}

std::optional<ObjectId> CheckedOutReferences::head(const std::string& branch) const { return inner_.head(branch); }
session::BranchRule CheckedOutReferences::rule_of(const std::string& branch) const { return inner_.rule_of(branch); }
std::unique_ptr<session::ReferenceStore::Turn> CheckedOutReferences::take_turn(const std::string& branch) {
  return inner_.take_turn(branch);
}
void CheckedOutReferences::make_durable(const std::string& branch) { inner_.make_durable(branch); }
bool CheckedOutReferences::reflog_has(const std::string& branch, const ObjectId& commit) const {
  return inner_.reflog_has(branch, commit);
}
void CheckedOutReferences::pin_fresh(const SessionId& session, const std::string& branch, const ObjectId& commit) {
  inner_.pin_fresh(session, branch, commit);
}
void CheckedOutReferences::pin_base(const SessionId& session, const ObjectId& commit) {
  inner_.pin_base(session, commit);
}
bool CheckedOutReferences::is_pinned(const SessionId& session, const ObjectId& commit) const {
  return inner_.is_pinned(session, commit);
}
void CheckedOutReferences::unpin_base(const SessionId& session) { inner_.unpin_base(session); }
void CheckedOutReferences::unpin_older(const SessionId& session, const ObjectId& base) {
  inner_.unpin_older(session, base);
}
void CheckedOutReferences::keep_result(const SessionId& session, const ObjectId& commit) {
  inner_.keep_result(session, commit);
}
std::optional<ObjectId> CheckedOutReferences::result(const SessionId& session) const { return inner_.result(session); }
void CheckedOutReferences::hide_result(const SessionId& session) { inner_.hide_result(session); }

void CheckedOutReferences::drop_result(const SessionId& session) { inner_.drop_result(session); }
void CheckedOutReferences::sweep_locks() { inner_.sweep_locks(); }

}  // namespace escrow::daemon
