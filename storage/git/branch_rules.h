// What the repository's own configuration file (git-config(1)) asks of Escrow. Read anew each time: a rule counts from
// the moment it is written.
//
//   [escrow]            requireApproval = true, approvalExpires = 7d: for every branch; auditRetention = 90d
//                       ignore = git (the default): commits leave out what git would not add; none: they do not
//                       filters = refuse, or raw: whether files that git would filter are committed as they are
//                       merge = path, or text: whether files that both sides changed are merged line by line
//   [escrow "BRANCH"]   the same but auditRetention for one branch, before what [escrow] says
//
// info/exclude (gitignore(5)) is read with it. Only the repository's files are read, not a user's. Thread-safe. Throws
// Error{bad_request} naming a key whose value cannot be read.
#pragma once

#include <chrono>
#include <string>

#include "session/base/branch_rule.h"

namespace escrow::storage {

inline constexpr std::chrono::hours kDefaultAuditRetention{90 * 24};

session::BranchRule read_branch_rule(const std::string& git_directory, const std::string& branch);

// How long the records of sessions that have ended are kept.
std::chrono::seconds read_audit_retention(const std::string& git_directory);
// escrow.cacheLimit, in bytes: what all caches together may have.
std::uint64_t read_cache_limit(const std::string& git_directory);

}  // namespace escrow::storage
