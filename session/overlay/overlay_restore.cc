// Back to a savepoint: the names of the session are made to lead to what they led to then.
//
// Both are walked from their roots, and only what differs is touched. First it is only noted; then names go, names
// come, and what has no name left is removed as by a program. No node is moved: one that has another name now is made
// anew.
#include <algorithm>
#include <map>
#include <utility>

#include "session/overlay/overlay_impl.h"

namespace escrow::session {

class Overlay::Impl::Restoring {
 public:
  Restoring(Impl& overlay, OverlayState& now, const OverlayState& then) : overlay_(overlay), now_(now), then_(then) {}

  std::vector<Stale> run() {
    visits_.push_back({now_.nodes.at(kRootNode).get(), then_.nodes.at(kRootNode).get()});
    for (std::size_t i = 0; i < visits_.size(); ++i) {
      const Visit visit = visits_[i];
      visit.is_new ? fill(*visit.now, *visit.then) : compare(visit);
    }
    for (const Name& gone : gone_) {
      overlay_.remove_edge(now_, *gone.directory, gone.name, *gone.node);
      stale_.push_back({gone.directory->id, gone.name});
    }
    for (const Name& back : back_) {
      overlay_.add_edge(now_, *back.directory, back.name, *back.node, place_of(*back.directory, back.name));
      overlay_.mark(now_, *back.node);
      stale_.push_back({back.directory->id, back.name});
    }
    for (const Name& gone : gone_ids()) overlay_.orphan_subtree(now_, *gone.node);
    now_.change += 1;
    return std::move(stale_);
  }

 private:
  struct Visit {
    Node* now;
    const Node* then;     // null: as the base has it
    bool is_new = false;  // `now` was made for it, and is empty
    Timestamp modified = {};  // of the base's, without `then`
  };
  struct Name {
    Node* directory;
    std::string name;
    Node* node;
  };

  // What has lost its last name, each once.
  std::vector<Name> gone_ids() {
    std::map<NodeId, Name> unnamed;
    for (const Name& gone : gone_)
      if (gone.node->links.empty()) unnamed.emplace(gone.node->id, gone);
    std::vector<Name> all;
    for (auto& [id, name] : unnamed) all.push_back(std::move(name));
    return all;
  }

  void compare(const Visit& visit) {
    Node& directory = *visit.now;
    const Node* const then = visit.then;
    restore_attributes(visit);
    std::map<std::string, bool> names;  // value unused
    for (const auto& [name, edge] : directory.directory->overrides) names[name];
    if (then != nullptr)
      for (const auto& [name, edge] : then->directory->overrides) names[name];
    for (const auto& [name, unused] : names) compare_name(directory, then, name);
  }

  void compare_name(Node& directory, const Node* then, const std::string& name) {
    Node* const wanted = wanted_node(directory, then, name);
    Node* shown = nullptr;
    if (const auto edge = directory.directory->overrides.find(name); edge != directory.directory->overrides.end()) {
      if (edge->second.node) shown = now_.nodes.at(edge->second.node).get();
    } else if (const NodeId child = child_of(directory, name)) {
      shown = &overlay_.stage(now_, child);
    }
    if (shown == wanted) return;
    if (shown != nullptr) gone_.push_back({&directory, name, shown});
    if (wanted != nullptr) back_.push_back({&directory, name, wanted});
  }

  // Null: nothing had the name.
  Node* wanted_node(const Node& directory, const Node* then, const std::string& name) {
    if (then != nullptr) {
      const auto& overrides = then->directory->overrides;
      if (const auto edge = overrides.find(name); edge != overrides.end())
        return edge->second.node ? &counterpart(*then_.nodes.at(edge->second.node)) : nullptr;
    }
    const Listing* const listing = directory.directory->listing.get();
    const auto index = listing != nullptr ? listing->find(name) : std::nullopt;
    return index ? &counterpart(*listing, *index, directory.id) : nullptr;
  }

  // The node, if it has these names: what was judged of a node by its path stays right.
  Node* linked(NodeId id, const std::vector<Link>& links) {
    const auto found = now_.nodes.find(id);
    if (found == now_.nodes.end() || !found->second->staged) return nullptr;
    const std::vector<Link>& has = found->second->links;
    const bool has_them = has.size() == links.size() && std::is_permutation(has.begin(), has.end(), links.begin());
    return has_them ? found->second.get() : nullptr;
  }

  // The node that stands for that of the savepoint: itself where it did not change.
  Node& counterpart(const Node& then) {
    Node*& known = counterparts_[then.id];
    if (known != nullptr) return *known;
    Node* const same = linked(then.id, then.links);
    if (same != nullptr && (then.is_directory() ? same->is_directory() : is_same(*same, then))) {
      known = same;
      if (then.is_directory()) visits_.push_back({same, &then});
      return *same;
    }
    Node& made = overlay_.new_node(now_, then.mode, then.uid, then.gid);
    counterparts_[then.id] = &made;
    made.rdev = then.rdev;
    made.accessed = then.accessed;
    made.modified = then.modified;
    made.base = then.base;
    made.base_mode = then.base_mode;
    made.target = then.target;
    made.xattrs = then.xattrs;
    if (then.content) {
      made.content = overlay_.new_content(then.content->recorded());
      if (then.content->has_lost()) made.content->set_lost(then.content->lost());
    }
    if (then.is_directory()) {
      made.directory->base_tree = then.directory->base_tree;
      made.directory->times = then.directory->times;
      made.directory->next_cookie = then.directory->next_cookie;
      visits_.push_back({&made, &then, true});
    }
    return made;
  }

  Node& counterpart(const Listing& listing, std::size_t index, NodeId directory) {
    const TreeEntry& entry = listing.entry(index);
    const NodeId id = listing.node(index);
    Node*& known = counterparts_[id];
    if (known != nullptr) return *known;
    const bool is_file = entry.mode == GitMode::regular || entry.mode == GitMode::group_writable ||
                         entry.mode == GitMode::executable;
    const Attributes attributes = overlay_.describe(entry, id, listing.modified(index));
    Node* const same = linked(id, std::vector<Link>{{directory, entry.name}});
    if (same != nullptr && (same->is_directory() || is_same(*same, entry, attributes))) {
      known = same;
      if (same->is_directory()) visits_.push_back({same, nullptr, false, attributes.modified});
      return *same;
    }
    Node& made = overlay_.new_node(now_, attributes.mode, attributes.uid, attributes.gid);
    counterparts_[id] = &made;
    made.accessed = made.modified = attributes.modified;
    made.base = entry.id;
    made.base_mode = entry.mode;
    if (entry.mode == GitMode::tree) {
      made.directory->base_tree = entry.id;
      made.directory->times = listing.times_below(index);
    }
    if (is_file)
      made.content = overlay_.new_content(Content::Form{entry.id, overlay_.base_files.blob_size(entry.id), {}});
    return made;
  }

  static bool is_same(const Node& one, const Node& then) {
    return one.mode == then.mode && one.uid == then.uid && one.gid == then.gid && one.rdev == then.rdev &&
           one.modified == then.modified && one.base == then.base && one.base_mode == then.base_mode &&
           one.target == then.target && one.xattrs == then.xattrs && !one.content == !then.content &&
           (!one.content || (one.content->form() == then.content->form() &&
                             one.content->lost().text() == then.content->lost().text()));
  }

  static bool is_same(const Node& one, const TreeEntry& entry, const Attributes& attributes) {
    return one.mode == attributes.mode && one.uid == attributes.uid && one.gid == attributes.gid &&
           one.modified == attributes.modified && one.xattrs.empty() && one.base == entry.id &&
           one.base_mode == entry.mode &&
           (!one.content || (one.content->unchanged_base() == entry.id && !one.content->has_lost()));
  }

  void restore_attributes(const Visit& visit) {
    Node& directory = *visit.now;
    const Node* then = visit.then;
    Node base;
    if (then == nullptr) {
      base.mode = kDirectoryType | overlay_.base_permissions(GitMode::tree);
      base.uid = overlay_.options.uid;
      base.gid = overlay_.options.gid;
      base.accessed = base.modified = visit.modified;
      then = &base;
    }
    if (directory.mode == then->mode && directory.uid == then->uid && directory.gid == then->gid &&
        directory.modified == then->modified && directory.xattrs == then->xattrs)
      return;
    directory.mode = then->mode;
    directory.uid = then->uid;
    directory.gid = then->gid;
    directory.accessed = then->accessed;
    directory.modified = then->modified;
    directory.changed = overlay_.clock.now();
    directory.xattrs = then->xattrs;
    overlay_.mark(now_, directory);
    stale_.push_back({directory.id, ""});
  }

  // A directory that was made anew has the names that it had, in their places.
  void fill(Node& made, const Node& then) {
    for (const auto& [name, edge] : then.directory->overrides) {
      now_.dirty_edges[{made.id, name}] = true;
      Override override{};
      if (edge.node) {
        Node& child = counterpart(*then_.nodes.at(edge.node));
        override = {child.id, edge.cookie};
        child.links.push_back({made.id, name});
        overlay_.mark(now_, child);
      }
      const auto added = made.directory->overrides.insert_or_assign(name, override).first;
      if (override.node) made.directory->added[override.cookie] = added->first;
    }
  }

  Impl& overlay_;
  OverlayState& now_;
  const OverlayState& then_;
  std::vector<Visit> visits_;
  std::map<NodeId, Node*> counterparts_;  // by the ids of the savepoint
  std::vector<Name> gone_, back_;
  std::vector<Stale> stale_;
};

std::vector<Overlay::Stale> Overlay::restore_savepoint(std::string_view name) {
  const std::unique_ptr<Overlay> then = at_savepoint(name);
  // What the base has is needed wherever a name differs from it.
  std::vector<NodeId> changed;
  {
    auto now = impl_->guarded.lock_shared();
    for (const auto& [id, node] : now->nodes)
      if (node->staged && node->is_directory() && !Impl::ready(*now, id)) changed.push_back(id);
  }
  for (const NodeId id : changed) impl_->make_ready(id);
  std::vector<Stale> stale;
  {
    const auto was = then->impl_->guarded.lock_shared();
    auto now = impl_->guarded.lock();
    stale = Impl::Restoring(*impl_, *now, *was).run();
  }
  impl_->flush(true);
  return stale;
}

}  // namespace escrow::session
