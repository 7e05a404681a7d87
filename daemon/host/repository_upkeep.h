// What keeps a repository small, sound and accounted for: gc, verify and audit, as the command line and the service
// answer them. No state; thread-safe as storage::Repository is. Throws what the repository throws.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/resources.h"
#include "daemon/host/repository_context.h"
#include "storage/database/audit_entry.h"
#include "storage/database/session_query.h"

namespace escrow::daemon {

// Forgets the sessions that ended longer ago than `keep_sessions_s` (nullopt: than the repository's
// escrow.auditRetention), then drops what nobody needs.
api::GcResource collect_garbage(RepositoryContext& context,
                                std::optional<std::uint64_t> keep_sessions_s = std::nullopt);

// Empty: all is well. `progress` gets done and total object counts.
std::vector<api::Finding> verify(const storage::Repository& repository,
                                 const std::function<void(std::uint64_t, std::uint64_t)>& progress);

// Which of the sessions that have ended or await approval; what is empty does not filter.
struct AuditFilter {
  std::optional<session::SessionId> session;
  std::string branch;
  std::set<session::State> states;
  std::optional<std::chrono::milliseconds> since;  // only what happened in this time

  bool accepts(const session::SessionRecord& record, const session::Timestamp& now) const;
  // Of the sessions among which those are that it accepts.
  storage::SessionQuery query(const session::Timestamp& now) const;
};
api::AuditResource audit_resource(storage::AuditEntry entry);

}  // namespace escrow::daemon
