#include "session/trees/tree_walk.h"

#include <algorithm>
#include <span>

#include "session/base/error.h"
#include "session/base/path_prefix.h"
#include "session/trees/git_file_rules.h"

namespace escrow::session {
namespace {

using Components = std::span<const std::string_view>;

std::string joined(const RepoPath& path, std::size_t components) {
  std::string text;
  for (const std::string_view component : path.components()) {
    if (components-- == 0) break;
    text = join_path(text, component);
  }
  return text;
}

TreeRoot graft_below(Quarantine& writer, const TreeRoot& tree, const RepoPath& path, Components rest,
                     const TreeRoot& subtree) {
  if (rest.empty()) return subtree;
  Tree entries = read_tree_or_empty(writer, tree);
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const TreeEntry& entry) { return entry.name == rest.front(); });
  TreeRoot child;
  if (found != entries.end()) {
    if (found->mode != GitMode::tree)
      throw Error(Errc::not_a_directory,
                  "cannot write below '" + quote_path(joined(path, path.components().size() - rest.size() + 1)) +
                      "': it is not a directory; choose another path prefix");
    child = found->id;
  }
  const TreeRoot grafted = graft_below(writer, child, path, rest.subspan(1), subtree);
  if (grafted == child) return tree;
  if (found != entries.end()) entries.erase(found);
  if (grafted) {
    TreeEntry entry{std::string(rest.front()), GitMode::tree, *grafted};
    entries.insert(std::upper_bound(entries.begin(), entries.end(), entry, tree_order_less), std::move(entry));
  }
  if (entries.empty()) return std::nullopt;
  return writer.put_tree(entries);
}

}  // namespace

void check_tree_depth(int depth) {
  if (depth > kMaxTreeDepth)
    throw Error(Errc::name_too_long, "directories are nested more than " + std::to_string(kMaxTreeDepth) +
                                         " deep; move or remove the deepest ones");
}

Tree read_tree_or_empty(const ObjectReader& objects, const TreeRoot& tree) {
  return tree ? read_shown_tree(objects, *tree) : Tree{};
}

TreeRoot without_empty(const ObjectReader& objects, const TreeRoot& tree) {
  return tree && read_shown_tree(objects, *tree).empty() ? std::nullopt : tree;
}

TreeRoot tree_of_commit(const ObjectReader& objects, const std::optional<ObjectId>& commit) {
  if (!commit) return std::nullopt;
  return without_empty(objects, objects.read_commit(*commit).tree);
}

std::optional<TreeEntry> leaf_of(const std::optional<TreeEntry>& entry) {
  return entry && entry->mode != GitMode::tree ? entry : std::nullopt;
}

TreeRoot tree_of(const std::optional<TreeEntry>& entry) {
  return entry && entry->mode == GitMode::tree ? TreeRoot(entry->id) : std::nullopt;
}

std::optional<TreeEntry> entry_named(const Tree& tree, std::string_view name) {
  const auto found = std::find_if(tree.begin(), tree.end(), [&](const TreeEntry& one) { return one.name == name; });
  return found == tree.end() ? std::nullopt : std::optional(*found);
}

std::optional<TreeEntry> entry_at(const ObjectReader& objects, const TreeRoot& tree, const RepoPath& path) {
  if (!tree) return std::nullopt;
  TreeEntry at{"", GitMode::tree, *tree};
  for (const std::string_view component : path.components()) {
    if (at.mode != GitMode::tree) return std::nullopt;
    Tree entries = read_shown_tree(objects, at.id);
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [component](const TreeEntry& entry) { return entry.name == component; });
    if (found == entries.end()) return std::nullopt;
    at = std::move(*found);
  }
  return at;
}

TreeRoot graft_tree(Quarantine& writer, const TreeRoot& tree, const RepoPath& path, const TreeRoot& subtree) {
  const std::vector<std::string_view> components = path.components();
  check_tree_depth(static_cast<int>(components.size()));
  check_path_prefix(path, "the path prefix");  // also of a session that an earlier version opened
  const TreeRoot wanted = without_empty(writer, subtree);
  if (!wanted) {
    // An empty tree that the repository has there (git never writes one) is not a change of ours.
    const std::optional<TreeEntry> there = entry_at(writer, tree, path);
    if (there && there->mode == GitMode::tree && read_shown_tree(writer, there->id).empty()) return tree;
  }
  return graft_below(writer, tree, path, components, wanted);
}

}  // namespace escrow::session
