#include "session/overlay/overlay.h"

#include <algorithm>

#include "session/base/link_target.h"
#include "session/base/repo_path.h"
#include "session/overlay/overlay_impl.h"
#include "session/trees/git_file_rules.h"

namespace escrow::session {
namespace {

constexpr std::size_t kListChunk = 128;

std::uint32_t type_bits(GitMode mode) {
  switch (mode) {
    case GitMode::tree:
    case GitMode::gitlink: return kDirectoryType;
    case GitMode::symlink: return kSymlinkType;
    case GitMode::regular:
    case GitMode::group_writable:
    case GitMode::executable: return kRegularType;
  }
  return kRegularType;
}

bool is_directory_mode(GitMode mode) { return type_bits(mode) == kDirectoryType; }

}  // namespace

const char* name_of(OmissionKind kind) {
  switch (kind) {
    case OmissionKind::excluded: return "excluded";
    case OmissionKind::ignored: return "ignored";
    case OmissionKind::git_name: return "git_name";
    case OmissionKind::git_refused: return "git_refused";
    case OmissionKind::socket: return "socket";
    case OmissionKind::fifo: return "fifo";
    case OmissionKind::device: return "device";
    case OmissionKind::empty_directory: return "empty_directory";
    case OmissionKind::xattrs: return "xattrs";
    case OmissionKind::mode: return "mode";
    case OmissionKind::unconverted_text: return "unconverted_text";
    case OmissionKind::unconverted_encoding: return "unconverted_encoding";
    case OmissionKind::unconverted_ident: return "unconverted_ident";
    case OmissionKind::unfiltered: return "unfiltered";
    case OmissionKind::inside_submodule: return "inside_submodule";
  }
  return "unknown";
}

bool is_conversion(OmissionKind kind) {
  return kind == OmissionKind::unconverted_text || kind == OmissionKind::unconverted_encoding ||
         kind == OmissionKind::unconverted_ident || kind == OmissionKind::unfiltered;
}

Overlay::Impl::Impl(Options given, const ObjectReader& reader, StagingArea& area, SessionJournal& journal, Clock& time,
                    Log& logger)
    : options(std::move(given)),
      objects(reader),
      base_files(options.files != nullptr ? *options.files : reader),
      staging(area),
      clock(time),
      log(logger),
      content_services{base_files, area,
                       [this] { return StagingId{next_staging.fetch_add(1)}; }, sealed_below},
      writer(journal),
      abandoned(options.is_frozen) {
  record_what_was_left(load());
  flusher = std::thread([this] { run_flusher(); });
}

Overlay::Impl::~Impl() {
  {
    auto now = signal.lock();
    now->stop = true;
    signalled.notify_all();
  }
  flusher.join();
  try {
    flush(false);
  } catch (const std::exception&) {
    // Tried again, below.
  }
  stop_syncing();
  try {
    flush(false);
  } catch (const std::exception& error) {
    log.write(LogLevel::error, std::string("closing a session: its last edits could not be recorded: ") + error.what());
  }
}

// ---- finding ----

Found Overlay::Impl::find(const OverlayState& state, NodeId id) {
  if (const auto node = state.nodes.find(id); node != state.nodes.end()) return {node->second.get(), nullptr, 0, {}};
  auto block = state.blocks.upper_bound(id.value);
  if (block == state.blocks.begin()) return {};
  --block;
  const std::uint64_t index = id.value - block->first;
  if (index >= block->second.count) return {};
  const auto directory = state.nodes.find(block->second.directory);
  if (directory == state.nodes.end() || !directory->second->is_directory()) return {};
  const DirectoryBody& body = *directory->second->directory;
  Listing* listing = body.listing.get();
  if (!listing || listing->first().value != block->first) return {};
  // A base entry whose name was taken away is a node in memory, or is no more.
  if (!body.overrides.empty() && body.overrides.contains(listing->entry(index).name)) return {};
  return {nullptr, listing, index, directory->first};
}

bool Overlay::Impl::ready(const OverlayState& state, NodeId id) {
  const auto node = state.nodes.find(id);
  if (node == state.nodes.end() || !node->second->is_directory()) return false;
  const DirectoryBody& body = *node->second->directory;
  return body.listing || body.base_tree.is_null();
}

NodeId Overlay::Impl::child_of(const Node& directory, std::string_view name) {
  const DirectoryBody& body = *directory.directory;
  if (const auto edge = body.overrides.find(name); edge != body.overrides.end()) return edge->second.node;
  if (body.listing)
    if (const auto index = body.listing->find(name)) return body.listing->node(*index);
  return {};
}

Node& Overlay::Impl::directory_node(OverlayState& state, NodeId id) {
  const Found found = find(state, id);
  if (found.node) {
    if (!found.node->is_directory()) throw Error(Errc::not_a_directory, "a path component is not a directory");
    return *found.node;
  }
  if (!found.listing) throw Error(Errc::not_found, "a directory the kernel asked for is not known");
  if (!is_directory_mode(found.listing->entry(found.index).mode))
    throw Error(Errc::not_a_directory, "a path component is not a directory");
  auto node = materialise(found, id);
  found.listing->set_held(found.index, false);
  state.nodes.at(found.directory)->directory->child_nodes += 1;
  return *state.nodes.emplace(id, std::move(node)).first->second;
}

void Overlay::Impl::install_listing(OverlayState& state, Node& directory, Tree tree, ListedTimes times) {
  DirectoryBody& body = *directory.directory;
  const std::uint64_t count = tree.size();
  NodeId first{state.next_node};
  if (const auto known = state.block_of_directory.find(directory.id); known != state.block_of_directory.end()) {
    first = known->second;
  } else if (count > 0) {
    state.next_node.value += count;
    state.blocks[first.value] = {directory.id, count, body.base_tree};
    state.block_of_directory[directory.id] = first;
    state.new_blocks.push_back({directory.id, first, count, body.base_tree});
    state.change += 1;
    wake(false);
  }
  body.listing = std::make_shared<Listing>(first, std::move(tree), std::move(times));
  body.next_cookie = std::max(body.next_cookie, kFirstBaseCookie + count);
}

// Without its index a file may only look newer than it is.
ListedTimes Overlay::Impl::times_of(const Tree& tree, const TimesBelow& directory) const {
  try {
    return {tree, directory, options.times.get()};
  } catch (const Error& error) {
    log.write(LogLevel::warning, std::string("the times of files: ") + error.what());
    return ListedTimes(options.base_time);
  }
}

void Overlay::Impl::make_ready(NodeId id) {
  ObjectId tree;
  TimesBelow below;
  {
    auto now = guarded.lock();
    const Node& node = directory_node(*now, id);
    if (node.directory->listing) return;
    if (node.directory->base_tree.is_null()) return;
    tree = node.directory->base_tree;
    below = node.directory->times;
  }
  Tree entries = read_shown_tree(objects, tree);
  ListedTimes times = times_of(entries, below);
  auto now = guarded.lock();
  Node& node = directory_node(*now, id);
  if (!node.directory->listing && node.directory->base_tree == tree) 
    install_listing(*now, node, std::move(entries), std::move(times));
}

Overlay::Impl::Locked::Write Overlay::Impl::lock_ready(NodeId directory) {
  for (;;) {
    {
      auto now = guarded.lock();
      if (ready(*now, directory)) return now;
    }
    make_ready(directory);
  }
}

Overlay::Impl::Locked::Read Overlay::Impl::lock_ready_shared(NodeId directory) {
  for (;;) {
    {
      auto now = guarded.lock_shared();
      if (ready(*now, directory)) return now;
    }
    make_ready(directory);
  }
}

void Overlay::Impl::drop_clean(OverlayState& state, NodeId id) {
  while (id != kRootNode) {
    const auto found = state.nodes.find(id);
    if (found == state.nodes.end()) return;
    Node& node = *found->second;
    if (node.links.empty()) return destroy_if_unused(state, node);
    if (!node.is_directory() || node.staged || node.held) return;
    const DirectoryBody& body = *node.directory;
    if (body.child_nodes > 0 || (body.listing && body.listing->held_count() > 0)) return;
    const NodeId parent = node.links.front().directory;
    state.nodes.erase(found);
    const auto above = state.nodes.find(parent);
    if (above == state.nodes.end()) return;
    above->second->directory->child_nodes -= 1;
    id = parent;
  }
}

// ---- attributes ----

std::uint32_t Overlay::Impl::base_permissions(GitMode mode) const {
  switch (mode) {
    case GitMode::tree:
    case GitMode::gitlink:
    case GitMode::executable: return 0777 & ~options.umask;
    case GitMode::regular:
    case GitMode::group_writable: return 0666 & ~options.umask;
    case GitMode::symlink: return 0777;
  }
  return 0;
}

Attributes Overlay::Impl::describe(const Node& node) const {
  Attributes result;
  result.node = node.id;
  result.mode = node.mode;
  result.links = static_cast<std::uint32_t>(node.links.size());
  if (node.id == kRootNode) result.links = 1;
  result.uid = node.uid;
  result.gid = node.gid;
  result.rdev = node.rdev;
  result.accessed = node.accessed;
  result.modified = node.modified;
  result.changed = node.changed;
  if (node.is_directory()) result.size_bytes = 4096, result.blocks = 8;
  if (node.type() == kSymlinkType) result.size_bytes = node.target.size();
  return result;
}

Attributes Overlay::Impl::describe(const Found& found, NodeId id) const {
  return describe(found.listing->entry(found.index), id, found.listing->modified(found.index));
}

Attributes Overlay::Impl::describe(const TreeEntry& entry, NodeId id, Timestamp modified) const {
  Attributes result;
  result.node = id;
  result.mode = type_bits(entry.mode) | base_permissions(entry.mode);
  result.uid = options.uid;
  result.gid = options.gid;
  result.accessed = result.modified = result.changed = modified;
  if (is_directory_mode(entry.mode)) result.size_bytes = 4096, result.blocks = 8;
  return result;
}

Attributes Overlay::Impl::attributes(Locked::Read now, NodeId id) {
  const Found found = find(*now, id);
  if (!found) throw Error(Errc::not_found, "a file the kernel asked for is not known");
  if (found.node) {
    const Node& node = *found.node;
    Attributes result = describe(node);
    const std::shared_ptr<Content> content = node.content;
    const ObjectId link = node.type() == kSymlinkType && node.target.empty() ? node.base : ObjectId{};
    now.lock().unlock();
    if (content) {
      result.volatile_bytes = content->is_exposed();
      const StagingUsage usage = content->usage();
      result.size_bytes = usage.size_bytes;
      result.blocks = usage.blocks;
      if (content->was_exposed()) {
        // Another thread may have learned the times since they were read above.
        learn(id, *content, usage.modified);
        now = guarded.lock_shared();
        if (const Found again = find(*now, id); again.node) {
          result.modified = again.node->modified;
          result.changed = again.node->changed;
        }
        now.lock().unlock();
      }
    }
    if (!link.is_null()) result.size_bytes = objects.blob_size(link);
    return result;
  }
  const TreeEntry& entry = found.listing->entry(found.index);
  Attributes result = describe(found, id);
  if (is_directory_mode(entry.mode)) return result;
  const bool is_symlink = entry.mode == GitMode::symlink;  // the entry may go with its listing, below
  result.size_bytes = found.listing->known_size(found.index);
  if (result.size_bytes == Listing::kUnknownSize) {
    const std::shared_ptr<Listing> listing = now->nodes.at(found.directory)->directory->listing;
    const ObjectId blob = entry.id;
    now.lock().unlock();
    result.size_bytes = (is_symlink ? objects : base_files).blob_size(blob);
    listing->remember_size(found.index, result.size_bytes);
  }
  result.blocks = is_symlink ? 0 : (result.size_bytes + 511) / 512;
  return result;
}

// ---- the file system's reading half ----

Overlay::Overlay(Options options, const ObjectReader& objects, StagingArea& staging, SessionJournal& journal,
                 Clock& clock, Log& log)
    : impl_(std::make_unique<Impl>(std::move(options), objects, staging, journal, clock, log)) {}

Overlay::Overlay(Options options, const ObjectReader& objects, StagingArea& staging,
                 std::unique_ptr<SessionJournal> journal, Clock& clock, Log& log)
    : own_journal_(std::move(journal)),
      impl_(std::make_unique<Impl>(std::move(options), objects, staging, *own_journal_, clock, log)) {}

Overlay::~Overlay() = default;

std::optional<Attributes> Overlay::lookup(NodeId directory, std::string_view name) {
  if (name.size() > kNameLimit) throw Error(Errc::name_too_long, "a name is longer than 255 bytes");
  auto now = impl_->lock_ready_shared(directory);
  const NodeId child = Impl::child_of(*now->nodes.at(directory), name);
  if (!child) return std::nullopt;
  return impl_->attributes(std::move(now), child);
}

Attributes Overlay::attributes(NodeId node) { return impl_->attributes(impl_->guarded.lock_shared(), node); }

std::string Overlay::read_link(NodeId id) {
  ObjectId blob;
  {
    auto now = impl_->guarded.lock_shared();
    const Found found = Impl::find(*now, id);
    if (!found) throw Error(Errc::not_found, "a symbolic link the kernel asked for is not known");
    if (found.node) {
      if (found.node->type() != kSymlinkType) throw Error(Errc::invalid_argument, "not a symbolic link");
      if (!found.node->target.empty()) return found.node->target;
      blob = found.node->base;
    } else {
      const TreeEntry& entry = found.listing->entry(found.index);
      if (entry.mode != GitMode::symlink) throw Error(Errc::invalid_argument, "not a symbolic link");
      blob = entry.id;
    }
  }
  const auto source = impl_->objects.open_blob(blob);
  // One byte more than a target can have: a longer one is not cut to one that is.
  std::string target(std::min<std::uint64_t>(source->size(), kLongestTarget_bytes + 1), '\0');
  target.resize(source->read(0, std::as_writable_bytes(std::span(target))));
  return target;
}

std::size_t Overlay::read(NodeId id, std::uint64_t offset, std::span<std::byte> out) {
  std::shared_ptr<Content> content;
  ObjectId blob;
  {
    auto now = impl_->guarded.lock_shared();
    const Found found = Impl::find(*now, id);
    if (!found) throw Error(Errc::not_found, "a file the kernel asked for is not known");
    if (found.node) {
      content = found.node->content;
    } else {
      const TreeEntry& entry = found.listing->entry(found.index);
      if (type_bits(entry.mode) == kRegularType) blob = entry.id;
    }
  }
  if (!content && blob.is_null()) throw Error(Errc::invalid_argument, "not a regular file");
  try {
    return content ? content->read(offset, out) : impl_->base_files.open_blob(blob)->read(offset, out);
  } catch (const Error& error) {
    if (error.code() != Errc::input_output) throw;
    const std::vector<std::string> paths = names(id).paths;
    const std::string sentence = "cannot read " + (paths.empty() ? "a removed file" : quote_path(paths.front())) +
                                 ": " + error.what();
    *impl_->last_unreadable.lock() = sentence;
    throw Error(error.code(), sentence);
  }
}

std::string Overlay::last_unreadable() const { return *impl_->last_unreadable.lock(); }

std::optional<std::uint64_t> Overlay::seek(NodeId id, std::uint64_t offset, SeekTarget target) {
  std::shared_ptr<Content> content;
  {
    auto now = impl_->guarded.lock_shared();
    if (const Found found = Impl::find(*now, id); found.node) content = found.node->content;
  }
  if (content) return content->seek(offset, target);
  return seek_all_data(attributes(id).size_bytes, offset, target);
}

namespace {

struct ListedEntry {
  std::string name;
  std::uint64_t cookie;
  NodeId node;
  std::uint32_t mode;
};

std::uint32_t mode_of(const OverlayState& state, NodeId id, const TreeEntry* entry) {
  if (const auto node = state.nodes.find(id); node != state.nodes.end()) return node->second->mode;
  return entry ? type_bits(entry->mode) : kDirectoryType;
}

// Up to kListChunk entries of the directory after `cookie`, in cookie order, and none after `last`.
std::vector<ListedEntry> next_entries(const OverlayState& state, const Node& directory, std::uint64_t cookie,
                                      std::uint64_t last) {
  std::vector<ListedEntry> entries;
  if (directory.links.empty() && directory.id != kRootNode) return entries;
  const NodeId parent = directory.id == kRootNode ? kRootNode : directory.links.front().directory;
  if (cookie < 1) entries.push_back({".", 1, directory.id, kDirectoryType});
  if (cookie < 2) entries.push_back({"..", 2, parent, kDirectoryType});
  const DirectoryBody& body = *directory.directory;
  const std::uint64_t count = body.listing ? body.listing->size() : 0;
  std::uint64_t index = cookie < kFirstBaseCookie ? 0 : cookie - kFirstBaseCookie + 1;
  for (; index < count && entries.size() < kListChunk; ++index) {
    const TreeEntry& entry = body.listing->entry(index);
    NodeId node = body.listing->node(index);
    if (!body.overrides.empty())
      if (const auto edge = body.overrides.find(entry.name); edge != body.overrides.end()) {
        if (edge->second.cookie != kFirstBaseCookie + index) continue;
        node = edge->second.node;
      }
    entries.push_back({entry.name, kFirstBaseCookie + index, node, mode_of(state, node, &entry)});
  }
  auto added = body.added.upper_bound(std::max(cookie, kFirstBaseCookie + count - 1));
  for (; added != body.added.end() && added->first <= last && entries.size() < kListChunk; ++added) {
    const NodeId node = body.overrides.find(added->second)->second.node;
    entries.push_back({std::string(added->second), added->first, node, mode_of(state, node, nullptr)});
  }
  return entries;
}

}  // namespace

void Overlay::list(NodeId directory, std::uint64_t cookie, const std::function<bool(const Entry&)>& visit) {
  const std::uint64_t from = cookie;
  std::optional<std::uint64_t> last = impl_->listings.last_of(directory, cookie);
  bool is_over = false;
  for (bool wants_more = true; wants_more && !is_over;) {
    std::vector<ListedEntry> entries;
    {
      auto now = impl_->lock_ready_shared(directory);
      const Node& node = *now->nodes.at(directory);
      if (!last) last = node.directory->next_cookie - 1;
      entries = next_entries(*now, node, cookie, *last);
    }
    is_over = entries.empty();
    for (const ListedEntry& entry : entries) {
      wants_more = visit({entry.name, entry.cookie, entry.node, entry.mode});
      if (!wants_more) break;
      cookie = entry.cookie;
    }
  }
  if (cookie != from)
    impl_->listings.went_on(directory, from, cookie, *last);
  else if (is_over)
    impl_->listings.ended(directory, cookie, *last);
}

void Overlay::retain(NodeId id) {
  auto now = impl_->guarded.lock();
  const Found found = Impl::find(*now, id);
  if (found.node) found.node->held = true;
  if (found.listing) found.listing->set_held(found.index, true);
}

void Overlay::release(NodeId id) {
  auto now = impl_->guarded.lock();
  const Found found = Impl::find(*now, id);
  if (found.node) {
    found.node->held = false;
    if (found.node->links.empty() && id != kRootNode)
      impl_->destroy_if_unused(*now, *found.node);
    else
      impl_->drop_clean(*now, id);
  } else if (found.listing) {
    found.listing->set_held(found.index, false);
    impl_->drop_clean(*now, found.directory);
  }
}

std::vector<NodeId> Overlay::held_files() {
  std::vector<NodeId> files;
  auto now = impl_->guarded.lock_shared();
  for (const auto& [id, node] : now->nodes) {
    if (node->held && node->content) files.push_back(id);
    if (!node->is_directory() || !node->directory->listing) continue;
    const Listing& listing = *node->directory->listing;
    if (listing.held_count() == 0) continue;
    for (std::size_t index = 0; index < listing.size(); ++index)
      if (listing.held(index) && type_bits(listing.entry(index).mode) == kRegularType)
        files.push_back(listing.node(index));
  }
  return files;
}

Overlay::Usage Overlay::usage() {
  std::vector<std::shared_ptr<Content>> contents;
  Usage usage;
  {
    auto now = impl_->guarded.lock_shared();
    usage.nodes = now->nodes.size();
    for (const auto& [id, node] : now->nodes) {
      if (!node->staged) continue;
      if (node->content) contents.push_back(node->content);
    }
  }
  for (const auto& content : contents) {
    if (!content->is_staged()) continue;
    usage.staged_files += 1;
    usage.staged_bytes += content->usage().size_bytes;
  }
  return usage;
}

Overlay::Held Overlay::held(bool reclaim) {
  if (reclaim) {
    impl_->flush(true);
    impl_->staging.write_behind();
  }
  Held held{impl_->staging.held_bytes(), 0};
  std::vector<std::shared_ptr<Content>> contents;
  {
    auto now = impl_->guarded.lock_shared();
    for (const auto& [id, node] : now->nodes) {
      if (!node->staged) continue;
      // What only changed was there before: one name of it.
      const bool was_there = node->base_mode != GitMode{} && !node->links.empty();
      held.names += node->links.size() - (was_there ? 1 : 0);
      if (node->content) contents.push_back(node->content);
    }
  }
  for (const auto& content : contents) {
    try {
      held.bytes += content->holes();
    } catch (const Error&) {
      // A staging file that is lost takes nothing.
    }
  }
  return held;
}

std::uint64_t Overlay::growth(NodeId id, std::uint64_t offset, std::uint64_t length) {
  if (const auto content = impl_->content_of(id)) return content->growth(offset, length);
  // Of the base, and not in memory: what it would be in there.
  const ObjectId some_base(ObjectId::Bytes{1});
  return Content(impl_->content_services, Content::Form{some_base, attributes(id).size_bytes, {}, {}})
      .growth(offset, length);
}

void Overlay::limit_waste(std::uint64_t bytes) { impl_->staging.limit_waste(bytes); }

std::optional<std::string> Overlay::xattr(NodeId id, std::string_view name) {
  auto now = impl_->guarded.lock_shared();
  const Found found = Impl::find(*now, id);
  if (!found.node) return std::nullopt;
  const auto value = found.node->xattrs.find(name);
  if (value == found.node->xattrs.end()) return std::nullopt;
  return value->second;
}

std::vector<std::string> Overlay::xattr_names(NodeId id) {
  std::vector<std::string> names;
  auto now = impl_->guarded.lock_shared();
  if (const Found found = Impl::find(*now, id); found.node)
    for (const auto& [name, value] : found.node->xattrs) names.push_back(name);
  return names;
}

StagingArea::FreeSpace Overlay::free_space() { return impl_->staging.free_space(); }

void Overlay::flush(bool durable) { impl_->flush(durable); }

}  // namespace escrow::session
