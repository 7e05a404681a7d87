// The durable order of a commit (design, section 5): the one place that moves a branch, and the one that ends a
// session. INVARIANTS.md has the steps, and what recovery does after a crash at each.
//
// The caller holds the session's directory (its lock), and no other thread uses it. Works on trees, not on overlays, so
// recovery finishes commits with the same code. The record passed in is kept equal to the catalog's row.
#pragma once

#include <optional>
#include <string>

#include "session/session.h"

namespace escrow::session {

// How often a commit is made anew because others moved the branch first.
inline constexpr int kMaxSwapAttempts = 1000;

// What a session changed: `tree` against `base_tree`, the tree of the commit `base`. Whole-repository trees; nullopt
// is empty (and no commit, for `base`).
struct SessionResult {
  std::optional<ObjectId> base;
  std::optional<ObjectId> base_tree;
  std::optional<ObjectId> tree;
};

// Steps 1 to 6. `record` is open, or committing (a recovery that makes the commit anew). Its message, exit code and
// reason are what the commit is to say. With `by_hand` a conflict leaves the session open; else it is commit_failed and
// `result` is kept under refs/sessions/<id>. Another failure puts the session back to open with last_error and throws;
// only when the branch may have moved already does it stay `committing`, for recovery to decide.
CommitOutcome commit_result(const Services& services, SessionRecord& record, SessionDirectory& directory,
                            const SessionResult& result, bool by_hand, const std::string& who);

// Whether record.swap_to became part of the branch: walks back from the head, at most to record.swap_from, then asks
// the reflog.
bool swap_landed(const Services& services, const SessionRecord& record);

// Steps 5 and 6 for a commit that is in the branch.
void record_committed(const Services& services, SessionRecord& record, SessionDirectory& directory,
                      const std::string& who, const std::string& why);

struct Rollback {
  Reason reason = Reason::requested;
  std::optional<int> exit_code;
  std::string who;
  std::optional<SessionResult> keep;  // what stays fetchable as refs/sessions/<id>; nullopt: nothing remains
};
// `record` is open or committing.
void roll_back(const Services& services, SessionRecord& record, SessionDirectory& directory, const Rollback& rollback);

// Back to open, with the reason a person can read.
void return_to_open(const Services& services, SessionRecord& record, const std::string& last_error,
                    const std::string& who);

// Removes what a final session, or one that was never recorded, left behind: pins, objects that no reference holds, and
// last its directory, by which recovery finds the rest. Idempotent.
// Throws when something cannot be removed; recovery tries again.
void clean_up(const Services& services, const SessionId& id, SessionDirectory& directory, bool keep_result);

}  // namespace escrow::session
