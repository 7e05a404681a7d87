// What differs between two trees, path by path: for status, results and audit. (Patches and rename detection are
// storage's, through libgit2.)
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "session/base/change_counts.h"
#include "session/interfaces/object_store.h"
#include "session/trees/reconcile.h"

namespace escrow::session {

struct PathChange {
  std::string path;
  Did did;
  std::optional<TreeEntry> before, after;
};

// Deletions first, then by path. Equal sub-trees are not read. Directories are not listed, their files are. Throws
// Error{result_too_large} when the list would exceed the bounds of different_trees.h, before it takes much memory.
std::vector<PathChange> tree_changes(const ObjectReader& objects, const std::optional<ObjectId>& before,
                                     const std::optional<ObjectId>& after);

// The paths of the first `most` of these, in the order of the trees. Returns whether they are all; what remains is not
// read.
bool first_changed_paths(const ObjectReader& objects, const std::optional<ObjectId>& before,
                         const std::optional<ObjectId>& after, std::size_t most, std::vector<std::string>& paths);

ChangeCounts count_changes(const std::vector<PathChange>& changes);
// The same without the list, however long it would be: each pair of sub-trees is read once, and no count exceeds
// kMostCounted.
ChangeCounts count_changes(const ObjectReader& objects, const std::optional<ObjectId>& before,
                           const std::optional<ObjectId>& after);

}  // namespace escrow::session
