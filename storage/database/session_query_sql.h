// The SQL of a SessionQuery, for sqlite_session_catalog.cc.
#pragma once

#include <string>
#include <string_view>

#include "storage/database/session_query.h"

namespace escrow::storage {

// As the index session_unended has it, so that SQLite takes that.
inline constexpr std::string_view kIsUnended = "state NOT IN ('committed', 'commit_failed', 'rolled_back')";

// "SELECT <columns> FROM session ..." in the query's order. Its one parameter is the issuer; without one there is none.
// nullopt: no session can match.
std::optional<std::string> sql_of(const SessionQuery& query, std::string_view columns);

// An UPDATE of the row with the id ?1 to the values of `columns`, in their order.
std::string sql_update(std::string_view columns);

}  // namespace escrow::storage
