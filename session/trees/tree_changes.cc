#include "session/trees/tree_changes.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "session/base/repo_path.h"
#include "session/trees/different_trees.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {
namespace {

class ChangeListing {
 public:
  ChangeListing(const ObjectReader& objects, const TreePair& all)
      : objects_(objects), bound_(objects, WholeTrees::by_file) {
    bound_.begin(all);
  }

  void below(const TreePair& pair, const std::string& path, int depth) {
    if (!bound_.enters(pair, depth)) return;
    check_tree_depth(depth);
    for (const auto& [name, sides] :
         join_trees<2>({read_tree_or_empty(objects_, pair.before), read_tree_or_empty(objects_, pair.after)})) {
      if (sides[0] == sides[1]) continue;
      const std::string own = join_path(path, name);
      const std::optional<TreeEntry> leaf_before = leaf_of(sides[0]), leaf_after = leaf_of(sides[1]);
      if (leaf_before != leaf_after) {
        bound_.lists(own.size());
        changes.push_back({own, what_was_done(leaf_before, leaf_after), leaf_before, leaf_after});
      }
      below({tree_of(sides[0]), tree_of(sides[1])}, own, depth + 1);
    }
  }

  std::vector<PathChange> changes;

 private:
  const ObjectReader& objects_;
  BoundedListing bound_;
};

class FirstPaths {
 public:
  FirstPaths(const ObjectReader& objects, std::size_t most, std::vector<std::string>& paths)
      : objects_(objects), most_(most), paths_(paths) {}

  // False: there are more.
  bool below(const TreePair& pair, const std::string& path, int depth) {
    if (pair.before == pair.after || without_files_.contains(pair)) return true;
    if (without_files_.size() == kMostTreePairs) return false;
    check_tree_depth(depth);
    const std::size_t known = paths_.size();
    for (const auto& [name, sides] :
         join_trees<2>({read_tree_or_empty(objects_, pair.before), read_tree_or_empty(objects_, pair.after)})) {
      if (sides[0] == sides[1]) continue;
      const std::string own = join_path(path, name);
      if (leaf_of(sides[0]) != leaf_of(sides[1])) {
        if (paths_.size() == most_) return false;
        paths_.push_back(own);
      }
      if (!below({tree_of(sides[0]), tree_of(sides[1])}, own, depth + 1)) return false;
    }
    if (paths_.size() == known) without_files_.insert(pair);
    return true;
  }

 private:
  const ObjectReader& objects_;
  const std::size_t most_;
  std::vector<std::string>& paths_;
  std::unordered_set<TreePair, TreePairHash> without_files_;  // that differ in nothing but empty directories
};

}  // namespace

bool first_changed_paths(const ObjectReader& objects, const std::optional<ObjectId>& before,
                         const std::optional<ObjectId>& after, std::size_t most, std::vector<std::string>& paths) {
  return FirstPaths(objects, most, paths).below({before, after}, "", 0);
}

std::vector<PathChange> tree_changes(const ObjectReader& objects, const std::optional<ObjectId>& before,
                                     const std::optional<ObjectId>& after) {
  ChangeListing listing(objects, {before, after});
  listing.below({before, after}, "", 0);
  std::vector<PathChange> changes = std::move(listing.changes);
  const auto order = [](const PathChange& change) {
    return std::tuple<bool, const std::string&>(change.did != Did::deleted, change.path);
  };
  std::sort(changes.begin(), changes.end(),
            [&](const PathChange& a, const PathChange& b) { return order(a) < order(b); });
  return changes;
}

ChangeCounts count_changes(const ObjectReader& objects, const std::optional<ObjectId>& before,
                           const std::optional<ObjectId>& after) {
  return DifferentTrees(objects, WholeTrees::by_file).of({before, after}).files;
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
