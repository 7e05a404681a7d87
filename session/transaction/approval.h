// What a reviewer does with a sealed result (T8): commit exactly it, or roll it back. INVARIANTS.md has the states.
//
// The result id names a commit: a tree and the head it is to go on. Only that pair is ever committed; when the branch
// has moved, what would be committed now gets an id of its own and is to be looked at first. Each function holds the
// session's directory (its lock) for its duration and decides from a row it reads under it, so of two reviewers one
// wins. Thread-safe, and safe between processes. Throws Error{no_session}, Error{attached_elsewhere} while somebody
// else decides, Error{wrong_state} unless the session awaits approval; then nothing has changed.
#pragma once

#include <string>

#include "session/transaction/session.h"

namespace escrow::session {

// What a result id may be shortened to.
inline constexpr std::size_t kShortestResultId = 7;

struct Review {
  std::string reviewer;  // a principal
  std::string comment;   // one line, may be empty
};

struct Approval {
  Review review;
  std::string result;   // the id that was looked at, or a prefix; empty: the one the session was sealed with
  std::string message;  // of the commit; empty: the session's
};

// Committed or NothingToCommit (others committed the same) end the session. Conflicts and AwaitingApproval (others
// moved the branch, and the result now has another id) leave it waiting. Throws Error{wrong_state} naming the result
// when `result` is another one, or is left out although the result is not the one the session was sealed with.
CommitOutcome approve_session(const Services& services, const SessionId& id, const Approval& approval);

// `reason` is rejected or requested. Nothing of the session remains among the repository's objects, unless others have
// committed some of the same. Returns the record.
SessionRecord reject_session(const Services& services, const SessionId& id, const Review& review, Reason reason);

// For the verbs that a session which waits, or which has ended, refuses.
[[noreturn]] void refuse_waiting(const SessionRecord& record, const std::string& verb);

}  // namespace escrow::session
