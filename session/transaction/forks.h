// Forks: sessions that begin as another one, their parent, and are committed into it (INVARIANTS.md, "Forks").
//
// The parent's part is done by who holds the parent, the fork's by who holds the fork; each waits for the other, and
// lends what the other reads. A fork is in the parent's journal as a sealed layer, so that neither writes to a staging
// file that both show. Functions without state of their own; the caller has the session's verb, and keeps programs
// from changing it where that is said. What is named here begins with a '.', as no savepoint of a person's does.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "session/overlay/overlay.h"
#include "session/transaction/commit.h"
#include "session/transaction/session.h"

namespace escrow::session {

// How many forks a session may have at once, and how many sessions may lie over one another.
inline constexpr std::size_t kMostForks = 64;
inline constexpr std::size_t kDeepestFork = 8;

// In a fork: what it began as.
inline constexpr std::string_view kForkStart = ".fork";
// Whether a savepoint is one of those that this file makes.
bool is_own_savepoint(std::string_view name);
// Throws Error{bad_request} for those.
void refuse_own_savepoint(std::string_view name);

using IsStale = std::function<void(std::vector<Overlay::Stale>)>;

// ---- Of a parent.

// Seals what the parent is now, for `fork`. Programs wait. Throws Error{wrong_state} for a session that cannot have
// another fork, and what Overlay::create_savepoint() throws.
void seal_for_fork(const Services& services, Overlay& parent, const SessionRecord& row, const SessionId& fork);
// Fills the directory of `fork`, which its creator holds and lends, with that. Nothing waits. On disk on return.
void fill_fork(const Services& services, Overlay& parent, SessionDirectory& directory, const SessionRecord& row,
               const SessionId& fork);
// Finishes what a dead process left of a landing, and forgets forks that are no more. Programs wait.
void settle_forks(const Services& services, Overlay& parent, const IsStale& is_stale);
// Whether that has something to do.
bool has_ended_forks(const Services& services, Overlay& parent);
// The forks that are not at their end, or just come into being.
std::vector<SessionId> living_forks(const Services& services, Overlay& parent);
// Error{wrong_state} that names them.
[[noreturn]] void refuse_with_forks(const SessionRecord& row, const char* verb, const std::vector<SessionId>& forks);

// Takes in what `fork`, whose directory is lent, has changed since it began, and records that it is committed: both or
// neither, whatever dies (INVARIANTS.md). Conflicts change nothing. Programs wait. Throws Error{no_session} and
// Error{wrong_state} for what is no open fork of this session.
CommitOutcome land_fork(const Services& services, Overlay& parent, SessionDirectory& directory,
                        const SessionRecord& row, const SessionId& fork, const CommitRequest& request,
                        std::vector<Omission>& omitted, const IsStale& is_stale);

// ---- Of a fork.

// Commits it into its parent, by Services::parents, and ends it. Programs wait. `check` throws what keeps it from being
// committed; `result_of` is asked for what a run keeps of it when it conflicts. As Session::commit().
CommitOutcome commit_fork(const Services& services, Overlay& fork, SessionDirectory& directory, SessionRecord& row,
                          const CommitRequest& request, const std::function<void()>& check,
                          const std::function<SessionResult()>& result_of);

// Opens one. `options` are the parent's, narrowed (fork_options()); the parent's part is `fill`, which is called with
// the fork's directory held. As SessionManager::open() otherwise.
std::unique_ptr<Session> open_fork(const Services& services, const SessionId& parent, SessionOptions options,
                                   const SessionId& id, const std::function<void(const std::string&)>& prepare,
                                   const std::function<void()>& fill);
// What a fork of `parent` is opened with: all that holds for the parent, and what `narrowing` adds to it.
SessionOptions fork_options(const SessionOptions& parent, const SessionOptions& narrowing);

// What `shown` is, of a fork or its parent, with what a commit to a branch would leave out.
SessionResult whole_result(Overlay& shown, const SessionRecord& row, Quarantine& quarantine,
                           std::vector<Omission>& omitted);
// The tree that the fork began as.
std::optional<ObjectId> start_of_fork(Overlay& fork, const SessionRecord& row, Quarantine& quarantine);

}  // namespace escrow::session
