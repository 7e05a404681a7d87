// Brings the sessions that a dead process left behind to a legal state (design, section 5; INVARIANTS.md).
//
// Touches only sessions whose directory lock is free, and decides under that lock from a row it reads again. Every
// decision is recorded before its clean-up, so it may itself be killed anywhere and run again, and several processes
// may do it at once. A session that cannot be recovered now (a full disk) is logged and left as it is.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "session/transaction/commit.h"

namespace escrow::session {

// What an open session holds; needs its overlay, which is why the caller brings it. Only asked for orphaned runs that
// keep their result.
using ResultOf = std::function<SessionResult(const SessionRecord&, SessionDirectory&)>;

// Returns what was done, a sentence each; empty when all was well.
std::vector<std::string> recover_sessions(const Services& services, const ResultOf& result_of);

// Whether nothing of it is left but its row: its end is recorded before its directory goes, so somebody removed that.
// One that was set aside is not lost. Throws Error where that cannot be found out.
bool has_lost_directory(const Services& services, const SessionId& id);

// Rolls back such a session. Throws Error{wrong_state} when its row says something else by now.
void give_up_without_directory(const Services& services, SessionRecord& record, Reason reason,
                               std::optional<int> exit_code, const std::string& who);

// Decides one `committing` session that the caller holds. Afterwards the record is open or final.
std::string decide_commit(const Services& services, SessionRecord& record, SessionDirectory& directory);

}  // namespace escrow::session
