// What the nodes of an overlay are called.
#include <algorithm>
#include <optional>

#include "session/overlay/overlay_impl.h"

namespace escrow::session {

std::optional<std::string> Overlay::Impl::path_of(const OverlayState& state, const Link& link) {
  // Collected backwards, name by name.
  std::vector<std::string_view> names{link.name};
  std::size_t size = link.name.size();
  for (NodeId directory = link.directory; directory != kRootNode;) {
    const auto node = state.nodes.find(directory);
    if (node == state.nodes.end() || node->second->links.empty()) return std::nullopt;
    const Link& above = node->second->links.front();
    names.push_back(above.name);
    size += above.name.size() + 1;
    directory = above.directory;
  }
  std::string path;
  path.reserve(size);
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    if (!path.empty()) path += '/';
    path += *name;
  }
  return path;
}

Overlay::Origin Overlay::origin(NodeId id) {
  auto now = impl_->guarded.lock_shared();
  const Found found = Impl::find(*now, id);
  if (!found) throw Error(Errc::not_found, "a file that was named is not known");
  if (found.listing) {
    const TreeEntry& entry = found.listing->entry(found.index);
    return {false, entry.mode, entry.id};
  }
  const Node& node = *found.node;
  Origin origin{node.staged, node.base_mode, {}};
  if (node.content) origin.id = node.content->unchanged_base();
  else if (node.base_mode == GitMode::gitlink) origin.id = node.base;
  else if (!node.staged && node.directory) origin.id = node.directory->base_tree;
  return origin;
}

Overlay::Names Overlay::names(NodeId id) {
  if (id == kRootNode) return {{""}, true};
  Names result;
  auto now = impl_->guarded.lock_shared();
  const Found found = Impl::find(*now, id);
  if (found.node) {
    result.is_directory = found.node->is_directory();
    for (const Link& link : found.node->links)
      if (auto path = Impl::path_of(*now, link)) result.paths.push_back(std::move(*path));
  } else if (found.listing) {
    const TreeEntry& entry = found.listing->entry(found.index);
    result.is_directory = entry.mode == GitMode::tree || entry.mode == GitMode::gitlink;
    if (auto path = Impl::path_of(*now, {found.directory, entry.name})) result.paths.push_back(std::move(*path));
  }
  return result;
}

std::vector<std::string> Overlay::incomplete_files() {
  std::vector<std::string> paths;
  auto now = impl_->guarded.lock_shared();
  for (const auto& [id, node] : now->nodes) {
    if (!node->content || !node->content->has_lost()) continue;
    for (const Link& link : node->links)
      if (auto path = Impl::path_of(*now, link)) paths.push_back(std::move(*path));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<std::string> Overlay::staged_paths() {
  std::vector<std::string> paths;
  auto now = impl_->guarded.lock_shared();
  for (const auto& [id, node] : now->nodes) {
    if (!node->staged) continue;
    for (const Link& link : node->links)
      if (auto path = Impl::path_of(*now, link)) paths.push_back(*std::move(path));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace escrow::session
