// What a savepoint of a session may be called, and when a session can go back to one. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "session/interfaces/session_journal.h"
#include "session/interfaces/session_record.h"

namespace escrow::session {

// Throws Error{bad_request}.
void check_savepoint_name(std::string_view name);

// What a savepoint keeps of what the session is over: its base, and what is unresolved on it.
std::string savepoint_context(const SessionRecord& record);

// `prefix` and the first number that gives a name there is not yet.
std::string new_savepoint_name(std::string_view prefix, const std::vector<Savepoint>& savepoints);
// Of the savepoint that a restore makes first.
std::string name_before_restore(const std::vector<Savepoint>& savepoints);

}  // namespace escrow::session
