// The overlay's writing half: names, links, attributes and bytes.
#include <algorithm>

#include "session/base/link_target.h"
#include "session/overlay/overlay_impl.h"

namespace escrow::session {
namespace {

void check_name(std::string_view name) {
  if (name.size() > kNameLimit) throw Error(Errc::name_too_long, "a name is longer than 255 bytes");
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string_view::npos)
    throw Error(Errc::invalid_argument, "not a file name");
}

}  // namespace

// ---- staging ----

std::unique_ptr<Node> Overlay::Impl::materialise(const Found& found, NodeId id) {
  const TreeEntry& entry = found.listing->entry(found.index);
  const Attributes attributes = describe(found, id);
  auto node = std::make_unique<Node>();
  node->id = id;
  node->mode = attributes.mode;
  node->uid = attributes.uid;
  node->gid = attributes.gid;
  node->accessed = attributes.accessed;
  node->modified = attributes.modified;
  node->changed = attributes.changed;
  node->base = entry.id;
  node->base_mode = entry.mode;
  node->held = found.listing->held(found.index);
  node->links.push_back({found.directory, entry.name});
  if (node->type() == kDirectoryType) {
    node->directory = std::make_unique<DirectoryBody>();
    if (entry.mode == GitMode::tree) {
      node->directory->base_tree = entry.id;
      node->directory->times = found.listing->times_below(found.index);
    }
    node->directory->next_cookie = kFirstBaseCookie;
  } else if (node->type() == kRegularType) {
    // The size is known but for files that were never looked up: internal callers only.
    std::uint64_t size = found.listing->known_size(found.index);
    if (size == Listing::kUnknownSize) size = base_files.blob_size(entry.id);
    node->content = new_content(Content::Form{entry.id, size, {}, {}});
  }
  return node;
}

void Overlay::Impl::mark(OverlayState& state, Node& node) {
  state.change += 1;
  if (node.dirty || !node.staged) return;
  node.dirty = true;
  state.dirty_nodes.push_back(node.id);
  if (state.dirty_nodes.size() == 1 || state.dirty_nodes.size() == 256) wake(state.dirty_nodes.size() > 1);
}

Node& Overlay::Impl::stage(OverlayState& state, NodeId id) {
  const Found found = find(state, id);
  if (!found) throw Error(Errc::not_found, "a file the kernel asked for is not known");
  if (found.node && (found.node->staged || found.node->links.empty())) return *found.node;
  Node* node = found.node;
  if (!node) {
    auto made = materialise(found, id);
    found.listing->set_held(found.index, false);
    node = state.nodes.emplace(id, std::move(made)).first->second.get();
  } else {
    state.nodes.at(node->links.front().directory)->directory->child_nodes -= 1;
  }
  const Link link = node->links.front();
  Node& parent = stage(state, link.directory);
  node->staged = true;
  const std::uint64_t cookie = kFirstBaseCookie + (id.value - parent.directory->listing->first().value);
  const auto edge = parent.directory->overrides.insert_or_assign(link.name, Override{id, cookie}).first;
  parent.directory->added[cookie] = edge->first;
  state.dirty_edges[{parent.id, link.name}] = true;
  mark(state, *node);
  return *node;
}

std::uint64_t Overlay::Impl::place_of(const Node& directory, std::string_view name) {
  const DirectoryBody& body = *directory.directory;
  if (const auto edge = body.overrides.find(name); edge != body.overrides.end()) return edge->second.cookie;
  if (!body.listing) return 0;
  const auto index = body.listing->find(name);
  return index ? kFirstBaseCookie + *index : 0;
}

void Overlay::Impl::add_edge(OverlayState& state, Node& directory, std::string_view name, Node& node,
                             std::uint64_t place) {
  DirectoryBody& body = *directory.directory;
  const std::uint64_t cookie = place != 0 ? place : body.next_cookie++;
  const auto edge = body.overrides.insert_or_assign(std::string(name), Override{node.id, cookie}).first;
  body.added[cookie] = edge->first;
  node.links.push_back({directory.id, std::string(name)});
  state.dirty_edges[{directory.id, std::string(name)}] = true;
}

void Overlay::Impl::remove_edge(OverlayState& state, Node& directory, std::string_view name, Node& node) {
  DirectoryBody& body = *directory.directory;
  const auto edge = body.overrides.find(name);
  if (edge != body.overrides.end()) body.added.erase(edge->second.cookie);
  if (body.listing && body.listing->find(name)) {
    body.overrides.insert_or_assign(std::string(name), Override{});
  } else if (edge != body.overrides.end()) {
    body.overrides.erase(edge);
  }
  state.dirty_edges[{directory.id, std::string(name)}] = true;
  std::erase(node.links, Link{directory.id, std::string(name)});
}

void Overlay::Impl::touch(OverlayState& state, Node& directory) {
  directory.modified = directory.changed = clock.now();
  mark(state, directory);
}

// The node has no name left: its row and, for a directory, its edges go.
void Overlay::Impl::forget_rows(OverlayState& state, Node& node) {
  if (node.recorded) state.dropped_nodes.insert(node.id);
  node.recorded = false;
  node.staged = false;
  node.dirty = false;
  state.change += 1;
  if (!node.is_directory()) return;
  for (const auto& [name, edge] : node.directory->overrides) state.dirty_edges[{node.id, name}] = true;
  // What is left of a removed directory is an empty one: nothing of its base shows through again.
  node.directory->overrides.clear();
  node.directory->added.clear();
  node.directory->listing.reset();
  node.directory->base_tree = {};
}

void Overlay::Impl::destroy_if_unused(OverlayState& state, Node& node) {
  if (node.held || !node.links.empty() || node.id == kRootNode) return;
  if (node.is_directory()) {  // replaced with all it held: the kernel may still hold what is below
    const DirectoryBody& body = *node.directory;
    if (body.child_nodes > 0 || (body.listing && body.listing->held_count() > 0)) return;
  }
  if (node.content && node.content->form().staging)
    (node.ever_recorded ? state.unnamed : state.unwritten).push_back(std::move(node.content));
  if (node.is_directory()) {
    const auto block = state.block_of_directory.find(node.id);
    if (block != state.block_of_directory.end()) {
      state.blocks.erase(block->second.value);
      state.block_of_directory.erase(block);
    }
  }
  state.nodes.erase(node.id);
}

// Takes the name off `child`; what has no name left lives on only while the kernel holds it.
void Overlay::Impl::detach(OverlayState& state, Node& directory, std::string_view name, NodeId child) {
  Node& node = stage(state, child);
  remove_edge(state, directory, name, node);
  node.changed = clock.now();
  if (!node.links.empty()) {
    mark(state, node);
    return;
  }
  forget_rows(state, node);
  destroy_if_unused(state, node);
}

Node& Overlay::Impl::live_directory(OverlayState& state, NodeId id) {
  Node& directory = directory_node(state, id);
  if (directory.links.empty() && id != kRootNode) throw Error(Errc::not_found, "the directory was removed");
  return stage(state, id);
}

bool Overlay::Impl::is_empty(const Node& directory) {
  const DirectoryBody& body = *directory.directory;
  std::size_t hidden = 0;
  for (const auto& [name, edge] : body.overrides) {
    if (edge.node) return false;
    ++hidden;  // a whiteout always hides an entry of the base
  }
  return !body.listing || hidden == body.listing->size();
}

bool Overlay::Impl::is_below(const OverlayState& state, NodeId node, NodeId ancestor) const {
  for (;;) {
    if (node == ancestor) return true;
    const auto found = state.nodes.find(node);
    if (node == kRootNode || found == state.nodes.end() || found->second->links.empty()) return false;
    node = found->second->links.front().directory;
  }
}

Node& Overlay::Impl::new_node(OverlayState& state, std::uint32_t mode, std::uint32_t uid, std::uint32_t gid) {
  auto node = std::make_unique<Node>();
  node->id = state.next_node;
  state.next_node.value += 1;
  node->mode = mode;
  node->uid = uid;
  node->gid = gid;
  node->accessed = node->modified = node->changed = clock.now();
  node->staged = true;
  if (node->type() == kDirectoryType) {
    node->directory = std::make_unique<DirectoryBody>();
    node->directory->next_cookie = kFirstBaseCookie;
  } else if (node->type() == kRegularType) {
    node->content = new_content(Content::Form{});
  }
  Node& result = *node;
  state.nodes.emplace(result.id, std::move(node));
  mark(state, result);
  return result;
}

Attributes Overlay::Impl::insert(NodeId id, std::string_view name,
                                 const std::function<Node&(OverlayState&, Node&)>& make) {
  check_name(name);
  auto now = lock_ready(id);
  Node& directory = live_directory(*now, id);
  if (child_of(directory, name)) throw Error(Errc::exists, "the name exists");
  Node& node = make(*now, directory);
  add_edge(*now, directory, name, node);
  touch(*now, directory);
  Attributes result = describe(node);
  const auto content = node.content;
  now.lock().unlock();
  if (content) {
    const StagingUsage usage = content->usage();
    result.size_bytes = usage.size_bytes;
    result.blocks = usage.blocks;
  }
  return result;
}

// ---- names ----

Attributes Overlay::make_node(NodeId directory, std::string_view name, std::uint32_t mode, std::uint32_t rdev,
                              const Caller& caller) {
  return impl_->insert(directory, name, [&](OverlayState& state, Node& parent) -> Node& {
    std::uint32_t type = mode & kTypeMask;
    if (type == 0) type = kRegularType;
    std::uint32_t permissions = mode & kPermissionMask;
    std::uint32_t gid = caller.gid;
    if (parent.mode & kSetGroup) {
      gid = parent.gid;
      if (type == kDirectoryType) permissions |= kSetGroup;
    }
    Node& node = impl_->new_node(state, type | permissions, caller.uid, gid);
    node.rdev = rdev;
    return node;
  });
}

Attributes Overlay::make_symlink(NodeId directory, std::string_view name, std::string_view target,
                                 const Caller& caller) {
  if (target.size() > kLongestTarget_bytes)
    throw Error(Errc::name_too_long, "a symbolic link's target is longer than 4095 bytes");
  if (target.empty()) throw Error(Errc::not_found, "a symbolic link needs a target");
  return impl_->insert(directory, name, [&](OverlayState& state, Node& parent) -> Node& {
    const std::uint32_t gid = parent.mode & kSetGroup ? parent.gid : caller.gid;
    Node& node = impl_->new_node(state, kSymlinkType | 0777, caller.uid, gid);
    node.target = target;
    return node;
  });
}

Attributes Overlay::link(NodeId id, NodeId directory, std::string_view name) {
  return impl_->insert(directory, name, [&](OverlayState& state, Node&) -> Node& {
    Node& node = impl_->stage(state, id);
    if (node.is_directory()) throw Error(Errc::not_permitted, "a directory can have one name only");
    if (node.links.empty()) throw Error(Errc::not_found, "the file was removed");
    if (node.links.size() >= kLinkLimit) throw Error(Errc::too_many_links, "the file has 65000 names already");
    node.changed = impl_->clock.now();
    impl_->mark(state, node);
    return node;
  });
}

void Overlay::unlink(NodeId id, std::string_view name) {
  check_name(name);
  auto now = impl_->lock_ready(id);
  Node& directory = impl_->live_directory(*now, id);
  const NodeId child = Impl::child_of(directory, name);
  if (!child) throw Error(Errc::not_found, "no such name");
  if (impl_->stage(*now, child).is_directory()) throw Error(Errc::is_a_directory, "it is a directory");
  impl_->detach(*now, directory, name, child);
  impl_->touch(*now, directory);
}

void Overlay::remove_directory(NodeId id, std::string_view name) {
  if (name == ".") throw Error(Errc::invalid_argument, "\".\" cannot be removed");
  if (name == "..") throw Error(Errc::not_empty, "\"..\" cannot be removed");
  check_name(name);
  for (;;) {
    NodeId child;
    {
      auto now = impl_->lock_ready(id);
      Node& directory = impl_->live_directory(*now, id);
      child = Impl::child_of(directory, name);
      if (!child) throw Error(Errc::not_found, "no such name");
      impl_->directory_node(*now, child);
      if (Impl::ready(*now, child)) {
        if (!Impl::is_empty(*now->nodes.at(child))) throw Error(Errc::not_empty, "the directory is not empty");
        impl_->detach(*now, directory, name, child);
        impl_->touch(*now, directory);
        return;
      }
    }
    impl_->make_ready(child);
  }
}

void Overlay::rename(NodeId from_id, std::string_view name, NodeId to_id, std::string_view new_name, RenameMode mode) {
  check_name(name);
  check_name(new_name);
  for (;;) {
    impl_->make_ready(from_id);
    NodeId unread;
    {
      auto now = impl_->lock_ready(to_id);
      if (!Impl::ready(*now, from_id)) continue;
      Node& from = impl_->live_directory(*now, from_id);
      Node& to = impl_->live_directory(*now, to_id);
      const NodeId source = Impl::child_of(from, name);
      const NodeId target = Impl::child_of(to, new_name);
      if (!source) throw Error(Errc::not_found, "no such name");
      if (target && mode == RenameMode::no_replace) throw Error(Errc::exists, "the new name exists");
      if (!target && mode == RenameMode::exchange) throw Error(Errc::not_found, "no name to exchange with");
      if (source == target) return;
      // A name that goes on to another file keeps its place: a listing under way shows it once.
      const std::uint64_t new_place = Impl::place_of(to, new_name), old_place = Impl::place_of(from, name);
      Node& moved = impl_->stage(*now, source);
      if (moved.is_directory() && impl_->is_below(*now, to_id, source))
        throw Error(Errc::invalid_argument, "a directory cannot move below itself");
      if (mode == RenameMode::exchange) {
        Node& other = impl_->stage(*now, target);
        if (other.is_directory() && impl_->is_below(*now, from_id, target))
          throw Error(Errc::invalid_argument, "a directory cannot move below itself");
        impl_->remove_edge(*now, to, new_name, other);
        impl_->remove_edge(*now, from, name, moved);
        impl_->add_edge(*now, from, name, other, old_place);
        other.changed = impl_->clock.now();
        impl_->mark(*now, other);
      } else {
        if (target) {
          Node& replaced = impl_->stage(*now, target);
          if (replaced.is_directory() && !moved.is_directory())
            throw Error(Errc::is_a_directory, "the new name is a directory");
          if (!replaced.is_directory() && moved.is_directory())
            throw Error(Errc::not_a_directory, "the new name is not a directory");
          if (replaced.is_directory() && !Impl::ready(*now, target)) unread = target;
          if (!unread && replaced.is_directory() && !Impl::is_empty(replaced))
            throw Error(Errc::not_empty, "the directory of the new name is not empty");
          if (!unread) {
            impl_->detach(*now, to, new_name, target);
            if (moved.content) moved.content->set_replaces_others();
          }
        }
        if (!unread) impl_->remove_edge(*now, from, name, moved);
      }
      if (!unread) {
        impl_->add_edge(*now, to, new_name, moved, new_place);
        moved.changed = impl_->clock.now();
        impl_->mark(*now, moved);
        impl_->touch(*now, from);
        impl_->touch(*now, to);
        return;
      }
    }
    impl_->make_ready(unread);
  }
}

// ---- attributes and bytes ----

std::shared_ptr<Content> Overlay::Impl::content_to_change(NodeId id) {
  {
    auto now = guarded.lock_shared();
    if (const Found found = find(*now, id); found.node && (found.node->staged || found.node->links.empty()))
      if (found.node->content) return found.node->content;
  }
  auto now = guarded.lock();
  Node& node = stage(*now, id);
  if (node.is_directory()) throw Error(Errc::is_a_directory, "it is a directory");
  if (!node.content) throw Error(Errc::invalid_argument, "not a regular file");
  return node.content;
}

Attributes Overlay::change_attributes(NodeId id, const AttributeChange& change) {
  if (change.size_bytes) impl_->content_to_change(id)->truncate(*change.size_bytes);
  if (change.modified || change.modified_now) impl_->learn(id);  // or it would pass for newer than what is set here
  auto now = impl_->guarded.lock();
  Node& node = impl_->stage(*now, id);
  const Timestamp time = impl_->clock.now();
  if (change.mode) node.mode = (node.mode & kTypeMask) | (*change.mode & kPermissionMask);
  if (change.uid) node.uid = *change.uid;
  if (change.gid) node.gid = *change.gid;
  if (change.accessed) node.accessed = *change.accessed;
  if (change.accessed_now) node.accessed = time;
  if (change.size_bytes || change.modified_now) node.modified = time;
  if (change.modified) node.modified = *change.modified;
  node.changed = change.changed.value_or(time);
  impl_->mark(*now, node);
  now.lock().unlock();
  return attributes(id);
}

void Overlay::write(NodeId id, std::uint64_t offset, std::span<const std::byte> bytes, WriteOrigin) {
  impl_->content_to_change(id)->write(offset, bytes);
  auto now = impl_->guarded.lock();
  const Found found = Impl::find(*now, id);
  if (!found.node) return;
  found.node->modified = found.node->changed = impl_->clock.now();
  impl_->mark(*now, *found.node);
}

void Overlay::pages_lost(NodeId id, std::uint64_t offset, std::uint64_t size_bytes) {
  impl_->content_to_change(id)->lose(offset, size_bytes);
  auto now = impl_->guarded.lock();
  if (const Found found = Impl::find(*now, id); found.node) impl_->mark(*now, *found.node);
}

void Overlay::allocate(NodeId id, AllocateMode mode, std::uint64_t offset, std::uint64_t length) {
  impl_->content_to_change(id)->allocate(mode, offset, length);
  auto now = impl_->guarded.lock();
  const Found found = Impl::find(*now, id);
  if (!found.node) return;
  found.node->modified = found.node->changed = impl_->clock.now();
  impl_->mark(*now, *found.node);
}

void Overlay::set_xattr(NodeId id, std::string_view name, std::string_view value, XattrMode mode) {
  auto now = impl_->guarded.lock();
  Node& node = impl_->stage(*now, id);
  const auto known = node.xattrs.find(name);
  if (mode == XattrMode::create && known != node.xattrs.end()) throw Error(Errc::exists, "the attribute exists");
  if (mode == XattrMode::replace && known == node.xattrs.end()) throw Error(Errc::no_attribute, "no such attribute");
  node.xattrs.insert_or_assign(std::string(name), std::string(value));
  node.changed = impl_->clock.now();
  impl_->mark(*now, node);
}

void Overlay::remove_xattr(NodeId id, std::string_view name) {
  auto now = impl_->guarded.lock();
  Node& node = impl_->stage(*now, id);
  const auto known = node.xattrs.find(name);
  if (known == node.xattrs.end()) throw Error(Errc::no_attribute, "no such attribute");
  node.xattrs.erase(known);
  node.changed = impl_->clock.now();
  impl_->mark(*now, node);
}

}  // namespace escrow::session
