// From the conflicts of a three-way merge to paths that somebody settles, and back. Reads trees; no state.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "session/interfaces/session_record.h"
#include "session/transaction/commit.h"
#include "session/trees/reconcile.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {

// What keeps a session from being committed, or would.
struct Disputes {
  std::vector<Unresolved> known;    // of the session's row
  std::vector<Unresolved> met_now;  // conflicts with a head that the session is not on

  // By path; what is met now counts where a path is in both.
  std::vector<Unresolved> all() const;
  // Those that are, or are below, one of `paths`. Throws Error{not_found} naming a path without any.
  std::vector<Unresolved> chosen(const std::vector<RepoPath>& paths, const SessionId& session) const;
  bool has_met_now(const std::vector<Unresolved>& paths) const;
};

// The three versions of each conflicting path: `now` is the session's result, `theirs` the tree it was merged with.
std::vector<Unresolved> versions_of(const ObjectReader& objects, const std::vector<Conflict>& conflicts,
                                    const SessionResult& now, const TreeRoot& theirs);
Conflicts conflicts_of(const std::vector<Unresolved>& paths);

// False: one of them is the root of the session's mount, or above it, so no session can show its own side.
bool are_below(const RepoPath& prefix, const std::vector<Conflict>& conflicts);

// What takes these paths to the versions of `base`, below the prefix.
std::vector<PathChange> changes_to(const ObjectReader& objects, const TreeRoot& base,
                                   const std::vector<Unresolved>& paths, const RepoPath& prefix);

// Takes those out of `paths` that are, or are below, one of `settled`; false: none was.
bool take_settled(std::vector<Unresolved>& paths, const std::vector<RepoPath>& settled);

// Error{data_lost} that names files which lack what programs stored in them, and says what is to be done.
[[noreturn]] void refuse_lost(const SessionRecord& record, const char* what, const std::vector<std::string>& paths);
// Of a serializable session that is to come onto this head: throws Error{wrong_state} that names what it had read and
// others changed.
void refuse_changed_reads(const ObjectReader& objects, const SessionRecord& record, const SessionResult& now,
                          const TreeRoot& head_tree);

// Error{wrong_state} that names them and says how they are settled.
[[noreturn]] void refuse_unresolved(const SessionRecord& record);

}  // namespace escrow::session
