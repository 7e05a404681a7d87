#include "session/trees/tree_changes.h"

#include <algorithm>
#include <tuple>

#include "session/base/repo_path.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {
namespace {

void collect(const ObjectReader& objects, const TreeRoot& before, const TreeRoot& after, const std::string& path,
             int depth, std::vector<PathChange>& changes) {
  if (before == after) return;
  check_tree_depth(depth);
  for (const auto& [name, sides] :
       join_trees<2>({read_tree_or_empty(objects, before), read_tree_or_empty(objects, after)})) {
    if (sides[0] == sides[1]) continue;
    const std::string below = join_path(path, name);
    const std::optional<TreeEntry> leaf_before = leaf_of(sides[0]), leaf_after = leaf_of(sides[1]);
    if (leaf_before != leaf_after)
      changes.push_back({below, what_was_done(leaf_before, leaf_after), leaf_before, leaf_after});
    collect(objects, tree_of(sides[0]), tree_of(sides[1]), below, depth + 1, changes);
  }
}

// False: there are more.
bool collect_paths(const ObjectReader& objects, const TreeRoot& before, const TreeRoot& after, const std::string& path,
                   int depth, std::size_t most, std::vector<std::string>& paths) {
  if (before == after) return true;
  check_tree_depth(depth);
  for (const auto& [name, sides] :
       join_trees<2>({read_tree_or_empty(objects, before), read_tree_or_empty(objects, after)})) {
    if (sides[0] == sides[1]) continue;
    const std::string below = join_path(path, name);
    if (leaf_of(sides[0]) != leaf_of(sides[1])) {
      if (paths.size() == most) return false;
      paths.push_back(below);
    }
    if (!collect_paths(objects, tree_of(sides[0]), tree_of(sides[1]), below, depth + 1, most, paths)) return false;
  }
  return true;
}

}  // namespace

bool first_changed_paths(const ObjectReader& objects, const std::optional<ObjectId>& before,
                         const std::optional<ObjectId>& after, std::size_t most, std::vector<std::string>& paths) {
  return collect_paths(objects, before, after, "", 0, most, paths);
}

std::vector<PathChange> tree_changes(const ObjectReader& objects, const std::optional<ObjectId>& before,
                                     const std::optional<ObjectId>& after) {
  std::vector<PathChange> changes;
  collect(objects, before, after, "", 0, changes);
  const auto order = [](const PathChange& change) {
    return std::tuple<bool, const std::string&>(change.did != Did::deleted, change.path);
  };
  std::sort(changes.begin(), changes.end(),
            [&](const PathChange& a, const PathChange& b) { return order(a) < order(b); });
  return changes;
}

ChangeCounts count_changes(const std::vector<PathChange>& changes) {
  ChangeCounts counts;
  for (const PathChange& change : changes) {
    switch (change.did) {
      case Did::nothing: break;
      case Did::added: ++counts.added; break;
      case Did::deleted: ++counts.deleted; break;
      case Did::modified:
      case Did::type_changed: ++counts.modified; break;
    }
  }
  return counts;
}

}  // namespace escrow::session
