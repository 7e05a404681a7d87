#include "session/trees/reconcile.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "session/trees/different_trees.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {
namespace {

using Entry = std::optional<TreeEntry>;

enum class Kind { directory, file, symlink, submodule };

Kind kind_of(GitMode mode) {
  switch (mode) {
    case GitMode::tree: return Kind::directory;
    case GitMode::regular:
    case GitMode::group_writable:
    case GitMode::executable: return Kind::file;
    case GitMode::symlink: return Kind::symlink;
    case GitMode::gitlink: return Kind::submodule;
  }
  throw Error(Errc::input_output, "a tree holds an entry of unknown mode " +
                                      std::to_string(static_cast<std::uint32_t>(mode)) + "; run escrow verify");
}

// So many are listed before they are counted.
constexpr std::size_t kConflictsUncounted = 10'000;

enum class OnConflict { stop_writing, keep_ours };

class Merge {
 public:
  Merge(Quarantine& writer, OnConflict on_conflict, MergeFiles files)
      : writer_(writer), on_conflict_(on_conflict), files_(files) {}

  TreeRoot trees(const TreeRoot& base, const TreeRoot& ours, const TreeRoot& theirs, const std::string& path,
                 int depth) {
    if (ours == base) return theirs;
    if (theirs == base || ours == theirs) return ours;
    const Trees sides{base, ours, theirs};
    if (depth == 0) all_ = sides;
    if (const auto known = merged_.find(sides); known != merged_.end()) {
      conflict_count_ += known->second.conflicts;
      if (conflict_count_ > kMostConflicts) refuse();
      return known->second.tree;
    }
    check_tree_depth(depth);
    const std::uint64_t conflicts_before = conflict_count_;
    TreeRoot merged = read_and_merge(sides, path, depth);
    const std::uint64_t conflicts = conflict_count_ - conflicts_before;
    if (conflicts == 0 || !lists_conflicts_) {
      if (merged_.size() == kMostTreePairs) refuse();
      merged_.emplace(sides, Merged{merged, conflicts});
    }
    return merged;
  }

  std::vector<Conflict> take_conflicts() {
    std::sort(conflicts_.begin(), conflicts_.end(),
              [](const Conflict& a, const Conflict& b) { return a.path < b.path; });
    return std::move(conflicts_);
  }

 private:
  using Trees = std::array<TreeRoot, 3>;  // base, ours, theirs
  struct Merged {
    TreeRoot tree;
    std::uint64_t conflicts;
  };
  struct TreesHash {
    std::size_t operator()(const Trees& trees) const noexcept {
      return TreePairHash()({trees[0], trees[1]}) * 31 + TreePairHash()({trees[1], trees[2]});
    }
  };

  [[noreturn]] static void refuse() {
    throw Error(Errc::result_too_large, "both sides changed too many of the same paths: Escrow lists at most " +
                                            std::to_string(kMostConflicts) + " conflicts of " +
                                            std::to_string(kMostConflictPath_bytes >> 20) + " MiB, and compares at "
                                            "most " + std::to_string(kMostTreePairs) + " directories");
  }

  TreeRoot read_and_merge(const Trees& sides, const std::string& path, int depth) {
    const auto& [base, ours, theirs] = sides;
    Tree our_entries = read_tree_or_empty(writer_, ours);
    Tree their_entries = read_tree_or_empty(writer_, theirs);
    auto joined = join_trees<3>({read_tree_or_empty(writer_, base), our_entries, their_entries});
    compared_ += joined.size();
    if (compared_ > kMostComparedEntries) refuse();
    Tree merged;
    for (const auto& [name, entry_sides] : joined)
      if (Entry entry =
              entries(entry_sides[0], entry_sides[1], entry_sides[2], name, join_path(path, name), depth))
        merged.push_back(std::move(*entry));
    std::sort(merged.begin(), merged.end(), tree_order_less);
    if (merged.empty()) return std::nullopt;
    if (merged == our_entries) return ours;
    if (merged == their_entries) return theirs;
    // After a conflict only names matter any more; that this directory is not empty still does, to the file that may
    // want its name.
    if (conflict_count_ != 0 && on_conflict_ == OnConflict::stop_writing) return ours ? ours : theirs;
    return writer_.put_tree(merged);
  }

  // Before the list becomes long, all conflicts are counted, each three trees once.
  void add_conflict(Conflict conflict) {
    path_bytes_ += conflict.path.size();
    if (++conflict_count_ > kMostConflicts || path_bytes_ > kMostConflictPath_bytes) refuse();
    if (!lists_conflicts_) return;
    conflicts_.push_back(std::move(conflict));
    if (conflicts_.size() != kConflictsUncounted) return;
    Merge counting(writer_, on_conflict_, files_);
    counting.lists_conflicts_ = false;
    counting.trees(all_[0], all_[1], all_[2], "", 0);
  }

  // What a path is as a file and what lies below it as a directory are decided apart; when both remain, a file and a
  // directory want the same name.
  Entry entries(const Entry& base, const Entry& ours, const Entry& theirs, const std::string& name,
                const std::string& path, int depth) {
    if (ours == base) return theirs;
    if (theirs == base || ours == theirs) return ours;
    const std::uint64_t conflicts_before = conflict_count_;
    const Entry leaf_base = leaf_of(base), leaf_ours = leaf_of(ours), leaf_theirs = leaf_of(theirs);
    const TreeRoot below = trees(tree_of(base), tree_of(ours), tree_of(theirs), path, depth + 1);
    const bool conflict_below = conflict_count_ != conflicts_before;

    Entry leaf;
    bool conflict_here = false;
    if (leaf_ours == leaf_base) {
      leaf = leaf_theirs;
    } else if (leaf_theirs == leaf_base || leaf_ours == leaf_theirs) {
      leaf = leaf_ours;
    } else {
      leaf = merged_text(leaf_base, leaf_ours, leaf_theirs);
      conflict_here = !leaf;
    }
    if (leaf && (below || conflict_below)) conflict_here = true;
    if (conflict_here) {
      add_conflict({path, what_was_done(base, ours), what_was_done(base, theirs)});
      return ours;
    }
    if (leaf) return leaf;
    if (below) return TreeEntry{name, GitMode::tree, *below};
    return std::nullopt;
  }

  // The entry of a file that both sides changed; nullopt: they are not to be merged, or cannot be.
  Entry merged_text(const Entry& base, const Entry& ours, const Entry& theirs) {
    if (files_ == MergeFiles::by_path) return std::nullopt;
    for (const Entry* side : {&base, &ours, &theirs})
      if (!*side || kind_of((*side)->mode) != Kind::file) return std::nullopt;
    std::optional<ObjectId> id = ours->id;
    if (ours->id == base->id) {
      id = theirs->id;
    } else if (theirs->id != base->id && theirs->id != ours->id) {
      id = writer_.put_merged_text(base->id, ours->id, theirs->id);
    }
    if (!id) return std::nullopt;
    // One side alone can have changed a mode of two values; of three (group_writable) the session's counts.
    return TreeEntry{ours->name, ours->mode == base->mode ? theirs->mode : ours->mode, *id};
  }

  Quarantine& writer_;
  const OnConflict on_conflict_;
  const MergeFiles files_;
  std::vector<Conflict> conflicts_;
  bool lists_conflicts_ = true;
  Trees all_;  // the roots
  std::uint64_t conflict_count_ = 0, path_bytes_ = 0, compared_ = 0;
  // Merges without a conflict do not depend on the path. Directories with one are entered at each of their paths, and
  // each time give a path to the list, which has a bound.
  std::unordered_map<Trees, Merged, TreesHash> merged_;
};

}  // namespace

const char* name_of(Met met) {
  switch (met) {
    case Met::changed: return "changed";
    case Met::read: return "read";
    case Met::listed: return "listed";
    case Met::absent: return "absent";
    case Met::read_below: return "read_below";
  }
  return "?";
}

const char* name_of(Did did) {
  switch (did) {
    case Did::nothing: return "unchanged";
    case Did::added: return "added";
    case Did::modified: return "modified";
    case Did::deleted: return "deleted";
    case Did::type_changed: return "type changed";
  }
  return "unknown";
}

Did what_was_done(const Entry& before, const Entry& after) {
  if (before == after) return Did::nothing;
  if (!before) return Did::added;
  if (!after) return Did::deleted;
  return kind_of(before->mode) == kind_of(after->mode) ? Did::modified : Did::type_changed;
}

std::variant<TreeRoot, Conflicts> reconcile(Quarantine& writer, const TreeRoot& base, const TreeRoot& ours,
                                            const TreeRoot& theirs, MergeFiles files) {
  Merge merge(writer, OnConflict::stop_writing, files);
  const TreeRoot merged = merge.trees(base, ours, theirs, "", 0);
  if (std::vector<Conflict> conflicts = merge.take_conflicts(); !conflicts.empty())
    return Conflicts{std::move(conflicts)};
  return merged;
}

MergeKeepingOurs merge_keeping_ours(Quarantine& writer, const TreeRoot& base, const TreeRoot& ours,
                                    const TreeRoot& theirs) {
  Merge merge(writer, OnConflict::keep_ours, MergeFiles::by_path);
  const TreeRoot merged = merge.trees(base, ours, theirs, "", 0);
  return {merged, merge.take_conflicts()};
}

}  // namespace escrow::session
