// Whether what a session published, and is about to take back, has become somebody else's meanwhile.
//
// Objects are named by their content: a push that brought the same file found it here and stored nothing. The cost
// grows with what entered the repository since the session's base, not with the repository. Source: git-rev-list(1),
// --objects --all --not BASE. A function; the caller brings its own handle.
#pragma once

#include <memory>
#include <vector>

#include "storage/git/git_handle.h"
#include "storage/objects/git_object_store.h"

namespace escrow::storage {

// Whether any reference, reflog or index reaches an object in `packs`. `known` are commits from which nothing in
// `packs` is reachable: what was complete before the packs were. Throws when something on the way cannot be read.
bool reaches_into(git_repository* repository, const GitObjectStore& objects,
                  const std::vector<std::shared_ptr<const PackFile>>& packs,
                  const std::vector<session::ObjectId>& known);

}  // namespace escrow::storage
