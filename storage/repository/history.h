// A branch's commits with their audit records. Functions; thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "storage/objects/git_object_store.h"
#include "storage/repository/audit_proof.h"
#include "storage/repository/repository.h"

namespace escrow::storage {

struct HistoryRange {
  std::string branch, path;
  std::optional<session::ObjectId> after;
};

// See Repository::log.
bool walk_history(git_repository* repository, const GitObjectStore& objects, AuditProof& proof,
                  const HistoryRange& range, const std::function<bool(const LogEntry&)>& visit);

// See Repository::branches. Without those that are damaged, or symbolic and lead to no reference.
std::vector<std::pair<std::string, session::ObjectId>> list_branches(git_repository* repository);

}  // namespace escrow::storage
