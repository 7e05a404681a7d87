#include "storage/host_files/host_nodes.h"

#include <algorithm>
#include <utility>

#include "session/base/file_mode.h"

namespace escrow::storage {

using session::kRootNode;
using session::NodeId;

namespace {

constexpr std::size_t kMostFresh = 16384, kMostOpened = 256, kMostNames = 64, kMostDepth = 2048;
// Ids from here on are inodes of the root's own device; they end at 2^40.
constexpr std::uint64_t kInodeIds = std::uint64_t{1} << 39;

}  // namespace

HostNodes::HostNodes(const HostIdentity& root) : root_(root) {
  HostNode node;
  node.identity = root;
  node.is_held = true;
  nodes_.emplace(kRootNode, std::move(node));
}

HostNode* HostNodes::find(NodeId node) {
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? nullptr : &found->second;
}

std::optional<NodeId> HostNodes::find(const HostIdentity& identity) {
  const NodeId id = id_of(identity);
  return nodes_.contains(id) ? std::optional(id) : std::nullopt;
}

void HostNodes::become(NodeId node, const HostIdentity& identity) {
  other_ids_[identity] = node;
  if (HostNode* const known = find(node)) known->identity = identity;
}

NodeId HostNodes::id_of(const HostIdentity& identity) {
  if (identity == root_) return kRootNode;
  const auto other = other_ids_.find(identity);
  if (other != other_ids_.end()) return other->second;
  if (identity.device == root_.device && identity.inode < kInodeIds) {
    const NodeId id{kInodeIds | identity.inode};
    const auto held = nodes_.find(id);
    if (held == nodes_.end() || held->second.identity == identity) return id;
  }
  const NodeId id{next_other_id_++};
  other_ids_.emplace(identity, id);
  return id;
}

NodeId HostNodes::remember(const HostIdentity& identity, NodeId directory, std::string_view name) {
  const NodeId id = id_of(identity);
  if (id == kRootNode) return id;
  const auto [node, is_new] = nodes_.try_emplace(id);
  if (is_new) node->second.identity = identity;
  add_name(id, {directory, std::string(name)});
  if (!is_new) return id;
  fresh_.push_back(id);
  drop_oldest();
  return id;
}

void HostNodes::add_name(NodeId node, const HostNode::Name& name) {
  HostNode* const named = find(node);
  HostNode* const directory = find(name.directory);
  if (named == nullptr || directory == nullptr || node == kRootNode) return;
  std::vector<HostNode::Name>& names = named->names;
  const auto known = std::find(names.begin(), names.end(), name);
  if (known != names.end()) {
    std::rotate(known, known + 1, names.end());
    return;
  }
  names.push_back(name);
  ++directory->below;
  named->pinned.reset();
  // A directory has one name: what was seen before was renamed by somebody else.
  const bool is_directory = (named->identity.type & session::kTypeMask) == session::kDirectoryType;
  ++named->opens;  // it stays, whatever goes with the name
  while (names.size() > (is_directory ? 1 : kMostNames)) remove_name(node, HostNode::Name(names.front()));
  --named->opens;
}

void HostNodes::remove_name(NodeId node, const HostNode::Name& name) {
  HostNode* const named = find(node);
  if (named == nullptr || std::erase(named->names, name) == 0) return;
  if (HostNode* const directory = find(name.directory)) {
    --directory->below;
    let_go(name.directory);
  }
}

void HostNodes::let_go(NodeId node) {
  const auto left = nodes_.find(node);
  if (left == nodes_.end() || node == kRootNode || is_in_use(left->second)) return;
  if (left->second.names.empty()) return drop(node);
  // Somebody may have looked it up again, and be about to hold it.
  fresh_.push_back(node);
  drop_oldest();
}

void HostNodes::drop_oldest() {
  while (fresh_.size() > kMostFresh) {
    const NodeId oldest = fresh_.front();
    fresh_.pop_front();
    drop(oldest);
  }
}

void HostNodes::drop(NodeId node) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end() || node == kRootNode || is_in_use(found->second)) return;
  const std::vector<HostNode::Name> names = std::move(found->second.names);
  nodes_.erase(found);
  for (const HostNode::Name& name : names) {
    HostNode* const directory = find(name.directory);
    if (directory == nullptr) continue;
    --directory->below;
    if (!is_in_use(*directory)) fresh_.push_back(name.directory);
  }
}

std::vector<NodeId> HostNodes::held_files() const {
  std::vector<NodeId> held;
  for (const auto& [id, node] : nodes_)
    if (node.is_held && (node.identity.type & session::kTypeMask) == session::kRegularType) held.push_back(id);
  return held;
}

std::vector<HostNodes::Path> HostNodes::named_paths(NodeId node) {
  if (node == kRootNode) return {{{}, ""}};
  std::vector<Path> paths;
  const HostNode* const named = find(node);
  if (named == nullptr) return paths;
  for (auto name = named->names.rbegin(); name != named->names.rend(); ++name) {
    std::string path = name->name;
    NodeId directory = name->directory;
    std::size_t depth = 0;
    // Others can move directories so that what was seen of them makes a circle.
    while (directory != kRootNode && ++depth < kMostDepth) {
      const HostNode* const above = find(directory);
      if (above == nullptr || above->names.empty()) break;
      path = above->names.back().name + '/' + path;
      directory = above->names.back().directory;
    }
    if (directory == kRootNode) paths.push_back({*name, std::move(path)});
  }
  return paths;
}

std::vector<std::string> HostNodes::paths(NodeId node) {
  std::vector<std::string> paths;
  for (Path& path : named_paths(node)) paths.push_back(std::move(path.path));
  return paths;
}

std::vector<std::shared_ptr<const HostFile>> HostNodes::keep_open(NodeId node) {
  opened_.push_back(node);
  std::vector<std::shared_ptr<const HostFile>> closed;
  while (opened_.size() > kMostOpened) {
    HostNode* const oldest = find(opened_.front());
    opened_.pop_front();
    if (oldest != nullptr && oldest->opens == 0) closed.push_back(std::move(oldest->file));
  }
  return closed;
}

}  // namespace escrow::storage
