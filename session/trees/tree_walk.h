// Walking several git trees side by side, and finding or replacing one path in a tree.
//
// Throughout, a tree is an optional id: nullopt is the empty tree, and what these functions return never is the id of
// an empty tree. Only the trees along a path are read. Stateless. Throws what the reader throws.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "session/base/repo_path.h"
#include "session/interfaces/object_store.h"

namespace escrow::session {

using TreeRoot = std::optional<ObjectId>;

// Trees nested deeper than this are refused with Error{name_too_long}: hostile ones would exhaust the stack. No path
// of the kernel's PATH_MAX has more components.
inline constexpr int kMaxTreeDepth = 2048;
void check_tree_depth(int depth);

Tree read_tree_or_empty(const ObjectReader& objects, const TreeRoot& tree);

// nullopt when `tree` is an empty tree.
TreeRoot without_empty(const ObjectReader& objects, const TreeRoot& tree);

// The tree of a commit; nullopt: no commit, or an empty tree.
TreeRoot tree_of_commit(const ObjectReader& objects, const std::optional<ObjectId>& commit);

// The two parts of an entry: what it is as a file, symlink or submodule, and what lies below it as a directory.
std::optional<TreeEntry> leaf_of(const std::optional<TreeEntry>& entry);
TreeRoot tree_of(const std::optional<TreeEntry>& entry);

std::optional<TreeEntry> entry_named(const Tree& tree, std::string_view name);

// The entries of `Count` trees by name. A name can be a file in one tree and a directory in another.
template <std::size_t Count>
std::map<std::string, std::array<std::optional<TreeEntry>, Count>> join_trees(std::array<Tree, Count> trees) {
  std::map<std::string, std::array<std::optional<TreeEntry>, Count>> joined;
  for (std::size_t i = 0; i < Count; ++i)
    for (TreeEntry& entry : trees[i]) joined[entry.name][i] = std::move(entry);
  return joined;
}

// What `tree` has at `path`; the root itself is a nameless tree entry (nullopt when empty). nullopt also when a parent
// is missing or not a directory.
std::optional<TreeEntry> entry_at(const ObjectReader& objects, const TreeRoot& tree, const RepoPath& path);

// `tree` with the directory at `path` being `subtree`. Missing parents are made; nullopt removes the directory and
// the parents it leaves empty. Throws Error{not_a_directory} when `path` or a parent is a file, and Error{bad_request}
// when git refuses a name of `path`.
TreeRoot graft_tree(Quarantine& writer, const TreeRoot& tree, const RepoPath& path, const TreeRoot& subtree);

}  // namespace escrow::session
