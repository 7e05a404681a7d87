// A branch's commits with their audit records. Functions; thread-safe.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "storage/objects/git_object_store.h"
#include "storage/repository/repository.h"

namespace escrow::storage {

// See Repository::log.
void walk_history(git_repository* repository, const GitObjectStore& objects, const std::string& branch,
                  const std::string& path, const std::function<bool(const LogEntry&)>& visit);

// See Repository::branches. Without those that are damaged, or symbolic and lead to no reference.
std::vector<std::pair<std::string, session::ObjectId>> list_branches(git_repository* repository);

}  // namespace escrow::storage
