// Which of what was read others have changed.
#include <algorithm>
#include <unordered_set>

#include "session/base/error.h"
#include "session/trees/different_trees.h"
#include "session/trees/git_file_rules.h"
#include "session/trees/read_set.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {
namespace {

using Id = ReadSet::Id;
using Sides = std::array<std::optional<TreeEntry>, 2>;

// An entry as a listing has it.
int type_of(const std::optional<TreeEntry>& entry) {
  if (!entry) return 0;
  if (entry->mode == GitMode::tree || entry->mode == GitMode::gitlink) return 1;
  return entry->mode == GitMode::symlink ? 2 : 3;
}

// In which tree an entry of a directory has which place.
class Places {
 public:
  Places(const ObjectReader& objects, const ReadSet::Directory* directory) {
    if (directory == nullptr || directory->tree.is_null()) return;
    if (directory->read.empty() && directory->looked_at.empty()) return;
    const Tree tree = read_shown_tree(objects, directory->tree);
    for (std::size_t index = 0; index < tree.size(); ++index) places_.emplace(tree[index].name, index);
  }
  std::optional<std::uint64_t> of(const std::string& name) const {
    const auto found = places_.find(name);
    return found == places_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::map<std::string, std::uint64_t> places_;
};

class ChangedReads {
 public:
  ChangedReads(const ObjectReader& objects, const ReadSet& reads) : objects_(objects), reads_(reads) {}

  // `directory`: null: nobody looked into it. `covered`: all below it counts as read.
  void walk(std::optional<Id> directory, bool covered, const TreeRoot& before, const TreeRoot& after,
            const std::string& path, int depth) {
    if (before == after || found_.size() == kMostReadConflicts) return;
    check_tree_depth(depth);
    // Below a directory that nobody looked into the answer does not depend on the path.
    const bool by_trees = !directory && covered;
    if (by_trees && without_change_.contains({before, after})) return;
    if (without_change_.size() == kMostTreePairs)
      throw Error(Errc::result_too_large, "too much differs to find what the session has read: " + listing_bounds());
    const std::size_t found_before = found_.size();
    const ReadSet::Directory* known = directory ? &reads_.at(*directory) : nullptr;
    covered = covered || (known != nullptr && known->all_below);
    if (!covered && known == nullptr) return;
    const Places places(objects_, covered ? nullptr : known);
    for (const auto& [name, sides] :
         join_trees<2>({read_tree_or_empty(objects_, before), read_tree_or_empty(objects_, after)})) {
      if (sides[0] == sides[1]) continue;
      const std::string below = join_path(path, name);
      const bool both_trees = tree_of(sides[0]) && tree_of(sides[1]);
      const bool is_taken = covered || is_whole(known, name);
      if (!both_trees) {
        const std::optional<Met> met = is_taken ? Met::read_below : how_met(*known, name, places.of(name), sides);
        // Of a directory that came or went with all that is in it, the one name says it.
        if (met) {
          add(below, sides, *met);
          continue;
        }
      }
      std::optional<Id> child;
      if (known != nullptr)
        if (const auto found = known->children.find(name); found != known->children.end()) child = found->second;
      walk(child, is_taken, tree_of(sides[0]), tree_of(sides[1]), below, depth + 1);
    }
    if (by_trees && found_.size() == found_before) without_change_.insert({before, after});
  }

  std::vector<Conflict> take() {
    std::ranges::sort(found_, {}, &Conflict::path);
    return std::move(found_);
  }

 private:
  static bool is_whole(const ReadSet::Directory* directory, const std::string& name) {
    if (directory == nullptr) return false;
    const auto found = directory->names.find(name);
    return found != directory->names.end() && found->second;
  }

  static std::optional<Met> how_met(const ReadSet::Directory& directory, const std::string& name,
                                    const std::optional<std::uint64_t>& place, const Sides& sides) {
    if (place && (directory.read.has(*place) || directory.looked_at.has(*place))) return Met::read;
    if (directory.all_in) return Met::read_below;
    if (!sides[0] && directory.names.contains(name)) return Met::absent;
    if (directory.is_listed && type_of(sides[0]) != type_of(sides[1])) return Met::listed;
    return std::nullopt;
  }

  void add(const std::string& path, const Sides& sides, Met met) {
    if (found_.size() == kMostReadConflicts) return;
    found_.push_back({path, Did::nothing, what_was_done(sides[0], sides[1]), met});
  }

  const ObjectReader& objects_;
  const ReadSet& reads_;
  std::vector<Conflict> found_;
  std::unordered_set<TreePair, TreePairHash> without_change_;
};

}  // namespace

std::vector<Conflict> changed_reads(const ObjectReader& objects, const ReadSet& reads, const RepoPath& prefix,
                                    const TreeRoot& before, const TreeRoot& after) {
  if (before == after) return {};
  ChangedReads changed(objects, reads);
  changed.walk(ReadSet::kRoot, false, tree_of(entry_at(objects, before, prefix)),
               tree_of(entry_at(objects, after, prefix)), prefix.text(), 0);
  return changed.take();
}

void add_conflicts(std::vector<Conflict>& conflicts, std::vector<Conflict> more) {
  const auto known = static_cast<std::ptrdiff_t>(conflicts.size());
  for (Conflict& one : more)
    if (!std::ranges::binary_search(conflicts.begin(), conflicts.begin() + known, one.path, {}, &Conflict::path))
      conflicts.push_back(std::move(one));
  std::ranges::sort(conflicts, {}, &Conflict::path);
}

}  // namespace escrow::session
