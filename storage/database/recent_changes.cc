#include "storage/database/recent_changes.h"

#include <algorithm>

#include "storage/database/session_query_sql.h"

namespace escrow::storage {

using session::ObjectId;
using session::Timestamp;

namespace {

constexpr std::size_t kChangesLookedAt = 1000;

Timestamp time_at(const Statement::Run& run) { return {run.integer(0), static_cast<std::uint32_t>(run.integer(1))}; }

}  // namespace

RecentChanges::RecentChanges(const std::string& catalog_path) : database_(catalog_path, {}) { database_.keep_log(); }

std::optional<Timestamp> RecentChanges::newest(const std::string& branch, const std::vector<ObjectId>& commits) {
  Statement statement(database_,
                      "SELECT changed_s, changed_ns, branch, \"commit\" FROM session INDEXED BY session_by_change "
                      "ORDER BY changed_s DESC, changed_ns DESC LIMIT ?1");
  auto run = statement.run(std::int64_t{kChangesLookedAt});
  std::optional<Timestamp> changed;
  std::size_t count = 0;
  for (; run.next(); ++count) {
    changed = time_at(run);
    if (run.bytes(2) != branch) continue;
    const std::optional<ObjectId> commit = run.is_null(3) ? std::nullopt : ObjectId::from_hex(run.bytes(3));
    if (!commit || std::find(commits.begin(), commits.end(), *commit) == commits.end()) return changed;
  }
  return count == kChangesLookedAt ? changed : std::nullopt;
}

std::optional<Timestamp> RecentChanges::oldest_base_time(const std::string& branch) {
  Statement statement(database_, "SELECT base_time_s, base_time_ns FROM session INDEXED BY session_unended WHERE " +
                                     std::string(kIsUnended) +
                                     " AND branch = ?1 AND base_time_s IS NOT NULL ORDER BY base_time_s, base_time_ns "
                                     "LIMIT 1");
  auto run = statement.run(Bytes{branch});
  return run.next() ? std::optional(time_at(run)) : std::nullopt;
}

}  // namespace escrow::storage
