// The durable order of a commit (design, section 5): the one place that moves a branch, and the one that ends a
// session. INVARIANTS.md has the steps, and what recovery does after a crash at each.
//
// The caller holds the session's directory (its lock), and no other thread uses it. Works on trees, not on overlays, so
// recovery finishes commits with the same code. The record passed in is kept equal to the catalog's row.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "session/transaction/kept_commits.h"
#include "session/transaction/session.h"
#include "session/trees/read_set.h"

namespace escrow::session {

// How often a commit is made anew because others moved the branch first.
inline constexpr int kMaxSwapAttempts = 1000;

// The first word of a transition's `why` where a commit has met conflicts, which no other has: history is read by it.
inline constexpr std::string_view kMetConflicts = "conflict";

// What a session changed: `tree` against `base_tree`, the tree of the commit `base`. Whole-repository trees; nullopt
// is empty (and no commit, for `base`).
struct SessionResult {
  std::optional<ObjectId> base;
  std::optional<ObjectId> base_tree;
  std::optional<ObjectId> tree;
  KeptCommits kept{};  // commits made in it that stay commits of their own; they have no part in a seal or a review
  std::shared_ptr<const ReadSet> reads{};  // below the session's prefix; null: they do not matter
  RepoPath prefix{};                       // of `reads`
};

// On whose behalf a commit is made: what a conflict, and a branch that others moved, mean to it.
enum class CommitFor {
  run,       // a conflict is commit_failed, and `result` is kept under refs/sessions/<id>
  by_hand,   // a conflict leaves the session open
  reviewer,  // only exactly `result` on its base is committed; else the session goes on waiting
};

// Steps 1 to 6. `record` is open, or committing (a recovery that makes the commit anew), or awaiting_approval (for a
// reviewer, whose name and comment are in it). Its message, exit code and reason are what the commit is to say.
// Another failure than a conflict puts the session back to what it was, with last_error, and throws; only when the
// branch may have moved already does it stay `committing`, and the message says so, for conclude_commit() to decide. A
// commit that is in the branch, on disk, is Committed whatever fails then: where even that cannot be recorded, the row
// stays `committing`, and recovery records it. For a reviewer, when others moved the branch: what would be committed on
// the new head becomes the record's result, and AwaitingApproval names it.
CommitOutcome commit_result(const Services& services, SessionRecord& record, SessionDirectory& directory,
                            const SessionResult& result, CommitFor whom, const std::string& who);

// What becomes of a session whose changes met conflicts: as commit_result() where the branch had them.
CommitOutcome end_in_conflict(const Services& services, SessionRecord& record, SessionDirectory& directory,
                              const SessionResult& result, Conflicts conflicts, CommitFor whom,
                              const std::string& who);

// Makes `result` a commit on its base that awaits approval: steps 1, 2, 7, 8 and 6 (nothing but staging is removed).
// `record` is open. Without a change it is committed without a commit, as ever. A failure leaves it open with
// last_error, and throws.
CommitOutcome seal_result(const Services& services, SessionRecord& record, SessionDirectory& directory,
                          const SessionResult& result, const std::string& who);

// The result on another head of its branch, whose rule says how files are merged that both sides changed.
std::variant<std::optional<ObjectId>, Conflicts> merge_onto(const std::optional<ObjectId>& head_tree,
                                                            const SessionResult& result, const std::string& branch,
                                                            const Services& services, Quarantine& quarantine);

// What a serializable session had read when its commit was last tried, or it was sealed; everything when that is not
// known. null: it is not serializable.
std::shared_ptr<const ReadSet> kept_reads(const Services& services, const SessionRecord& record);

// The sealed result of a session that has one, as commit_result() takes it. Reads two commits.
SessionResult sealed_result(const ObjectReader& objects, const SessionRecord& record);

// Whether record.swap_to became part of the branch: walks back from the head, at most to record.swap_from, then asks
// the reflog.
bool swap_landed(const Services& services, const SessionRecord& record);

// Decides what became of a commit that failed undecided, without committing anything: `record`, which is `committing`,
// is final afterwards, or what it was before. Whoever holds the directory calls it before any other verb. Throws when
// that cannot be found out, or recorded; then nothing has changed.
void conclude_commit(const Services& services, SessionRecord& record, SessionDirectory& directory,
                     const std::string& who);

// Steps 5 and 6 for a commit that is in the branch, on disk.
void record_committed(const Services& services, SessionRecord& record, SessionDirectory& directory,
                      const std::string& who, const std::string& why);

struct Rollback {
  Reason reason = Reason::requested;
  std::optional<int> exit_code;
  std::string who;
  std::optional<SessionResult> keep;  // what stays fetchable as refs/sessions/<id>; nullopt: nothing remains
};
// `record` is open, awaiting_approval (then `keep` is nullopt) or committing.
void roll_back(const Services& services, SessionRecord& record, SessionDirectory& directory, const Rollback& rollback);

// Back to open, or to awaiting_approval when it was sealed, with the reason a person can read.
void take_commit_back(const Services& services, SessionRecord& record, const std::string& last_error,
                    const std::string& who);

// Whether refs/sessions/<id> outlives the end of the session.
bool keeps_result(const SessionRecord& record);

// Step 6 once the outcome is recorded: the session has ended, whatever this finds; recovery removes the rest.
void clean_up_or_log(const Services& services, const SessionRecord& record, SessionDirectory& directory);

// A session that was committed makes what it has of its caches their published state, and any other, a fork too,
// nothing; a failure is only logged.
void publish_caches(const Services& services, const SessionRecord& record, SessionDirectory& directory);

// Removes what a final session, or one that was never recorded, left behind: pins, objects that no reference holds, and
// last its directory, by which recovery finds the rest. Idempotent.
// Throws when something cannot be removed; recovery tries again.
void clean_up(const Services& services, const SessionId& id, SessionDirectory& directory, bool keep_result);

}  // namespace escrow::session
