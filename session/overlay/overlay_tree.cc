// From the overlay to git trees, and others' tree entries into the overlay.
#include <algorithm>
#include <array>
#include <cstring>

#include "session/base/path_pattern.h"
#include "session/base/repo_path.h"
#include "session/overlay/overlay_impl.h"
#include "session/trees/attribute_files.h"
#include "session/trees/check_in_conversions.h"
#include "session/trees/git_file_rules.h"
#include "session/trees/ignore_files.h"

namespace escrow::session {
namespace {

// Deeper trees than any path can name (PATH_MAX / 2) are refused instead of exhausting the stack.
constexpr std::size_t kDepthLimit = 2048;

class StringSource final : public ByteSource {
 public:
  explicit StringSource(std::string bytes) : bytes_(std::move(bytes)) {}
  std::uint64_t size() const override { return bytes_.size(); }
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset >= bytes_.size()) return 0;
    const std::size_t count = std::min<std::uint64_t>(out.size(), bytes_.size() - offset);
    std::memcpy(out.data(), bytes_.data() + offset, count);
    return count;
  }

 private:
  std::string bytes_;
};

// A content as it is when the source is made; bytes that a concurrent truncation takes away read as zeroes.
class ContentSource final : public ByteSource {
 public:
  // `go_on` is called at each read, unless it is empty.
  ContentSource(const Content& content, std::function<void()> go_on = {})
      : content_(content), go_on_(std::move(go_on)), size_(content.usage().size_bytes) {}
  std::uint64_t size() const override { return size_; }
  std::size_t read(std::uint64_t offset, std::span<std::byte> out) const override {
    if (go_on_) go_on_();
    if (offset >= size_) return 0;
    const std::size_t count = std::min<std::uint64_t>(out.size(), size_ - offset);
    const std::size_t got = content_.read(offset, out.first(count));
    std::memset(out.data() + got, 0, count - got);
    return count;
  }

 private:
  const Content& content_;
  const std::function<void()> go_on_;
  std::uint64_t size_;
};

// What the builder needs of one changed name, copied out of the overlay's lock.
struct Changed {
  std::string name;
  NodeId node;  // 0: a whiteout
  std::uint32_t mode = 0;
  ObjectId base;
  GitMode base_mode{};
  std::shared_ptr<Content> content;
  std::string target;
  bool has_xattrs = false;
  std::optional<TreeEntry> base_entry;  // what the base has under this name
};

}  // namespace

class Overlay::Impl::TreeBuilder {
 public:
  TreeBuilder(Impl& overlay, Quarantine& quarantine, PathPatterns excludes, IgnoringAbove* ignoring,
              AttributesAbove* attributes)
      : overlay_(overlay),
        quarantine_(quarantine),
        excludes_(std::move(excludes)),
        ignoring_(ignoring),
        attributes_(attributes) {}

  std::optional<ObjectId> build_root() {
    return build(kRootNode, {.tracked = ignoring_ != nullptr ? ignoring_->tracked() : std::nullopt});
  }

  std::vector<Omission> take_omitted() { return std::move(omitted_); }

  // Half a file is in no commit.
  void refuse_damaged() const {
    if (damaged_.empty()) return;
    constexpr std::size_t kNamed = 5;
    std::string paths;
    for (std::size_t i = 0; i < std::min(kNamed, damaged_.size()); ++i)
      paths += (i > 0 ? ", \"" : "\"") + damaged_[i] + '"';
    if (damaged_.size() > kNamed) paths += " and " + std::to_string(damaged_.size() - kNamed) + " more";
    throw Error(Errc::data_lost,
                "cannot commit " + paths + ": the disk failed to take what was written; write the file" +
                    (damaged_.size() > 1 ? "s" : "") + " anew, or take them back to the base with `escrow discard`");
  }

 private:
  // A directory as its parent knows it.
  struct Place {
    std::string path{};              // from the mount's root
    std::string name{};
    std::size_t depth = 0;
    IgnoreLevel* above = nullptr;    // its parent's, as the next
    AttributeLevel* attributes_above = nullptr;
    std::optional<ObjectId> tracked{};  // the tree that the base has under its path
  };
  // While its changed entries are looked at.
  struct Here {
    const Place& place;
    IgnoreLevel* ignoring;           // null: nothing is ignored
    AttributeLevel* attributes;      // null: nothing is for Git LFS
    ObjectId own_tree;               // the base's tree that the directory was read from, maybe elsewhere
    std::optional<Tree> tracked{};   // that of the place, once it was read
  };

  std::optional<ObjectId> build(NodeId directory, const Place& place) {
    if (place.depth > kDepthLimit)
      throw Error(Errc::name_too_long, "directories are nested more than 2048 deep at " +
                                           quote_path(place.path).substr(0, 80) +
                                           "...; remove some levels before committing");
    Tree entries;
    std::vector<Changed> changed;
    ObjectId own_tree;
    for (bool collected = false; !collected;) {
      {
        auto now = overlay_.guarded.lock_shared();
        const auto node = now->nodes.find(directory);
        if (node == now->nodes.end()) return std::nullopt;  // removed by a writer meanwhile
        const DirectoryBody& body = *node->second->directory;
        if (body.overrides.empty()) return body.base_tree.is_null() ? std::nullopt : std::optional(body.base_tree);
        own_tree = body.base_tree;
        collected = ready(*now, directory);
        if (collected) collect(*now, body, entries, changed);
      }
      if (!collected) make_ready_unless_removed(directory);
    }
    const std::size_t kept = entries.size();
    const auto read = [&] { return ignore_file(std::span(entries).first(kept), changed, place.path); };
    const std::unique_ptr<IgnoreLevel> level = level_of(place, read);
    const auto read_attributes = [&] { return attributes_file(std::span(entries).first(kept), changed, place.path); };
    const std::unique_ptr<AttributeLevel> attributes = attributes_of(place, read_attributes);
    Here here{.place = place, .ignoring = level.get(), .attributes = attributes.get(), .own_tree = own_tree};
    for (const Changed& item : changed)
      if (const auto entry = entry_of(item, join_path(place.path, item.name), here)) entries.push_back(*entry);
    if (entries.empty()) return std::nullopt;
    std::sort(entries.begin(), entries.end(), tree_order_less);
    return quarantine_.put_tree(entries);
  }

  std::unique_ptr<IgnoreLevel> level_of(const Place& place, IgnoreLevel::ReadFile read) {
    if (ignoring_ == nullptr) return nullptr;
    if (place.above == nullptr) return ignoring_->level(std::move(read));
    return std::make_unique<IgnoreLevel>(*place.above, place.name, std::move(read));
  }

  std::unique_ptr<AttributeLevel> attributes_of(const Place& place, AttributeLevel::ReadFile read) {
    if (attributes_ == nullptr) return nullptr;
    if (place.attributes_above == nullptr) return attributes_->level(std::move(read));
    return std::make_unique<AttributeLevel>(*place.attributes_above, place.name, std::move(read));
  }

  // The content of a directory's .gitattributes as the session has it now.
  std::string attributes_file(std::span<const TreeEntry> kept, const std::vector<Changed>& changed,
                              const std::string& directory) const {
    const auto is_it = [](const auto& one) { return one.name == kAttributesFileName; };
    const std::string path = join_path(directory, kAttributesFileName);
    if (const auto item = std::find_if(changed.begin(), changed.end(), is_it); item != changed.end())
      return item->content ? read_attributes_file(ContentSource(*item->content), path) : std::string();
    const auto entry = std::find_if(kept.begin(), kept.end(), is_it);
    return entry == kept.end() ? std::string() : read_attributes_file(quarantine_, *entry, path);
  }

  // The same of its .gitignore.
  std::string ignore_file(std::span<const TreeEntry> kept, const std::vector<Changed>& changed,
                          const std::string& directory) const {
    const auto is_it = [](const auto& one) { return one.name == kIgnoreFileName; };
    const std::string path = join_path(directory, kIgnoreFileName);
    if (const auto item = std::find_if(changed.begin(), changed.end(), is_it); item != changed.end())
      return item->content ? read_ignore_file(ContentSource(*item->content), path) : std::string();
    const auto entry = std::find_if(kept.begin(), kept.end(), is_it);
    return entry == kept.end() ? std::string() : read_ignore_file(quarantine_, *entry, path);
  }

  // What the base has under the item's path. In a directory that was moved to where the base has none, what it had
  // before: as with `git mv`, what is tracked stays so.
  std::optional<TreeEntry> tracked_entry(const Changed& item, Here& here) const {
    const std::optional<ObjectId>& tree = here.place.tracked;
    if (!tree || tree == here.own_tree) return item.base_entry;
    if (!here.tracked) here.tracked = quarantine_.read_tree(*tree);
    const auto found = std::find_if(here.tracked->begin(), here.tracked->end(),
                                    [&](const TreeEntry& one) { return one.name == item.name; });
    return found == here.tracked->end() ? std::nullopt : std::optional(*found);
  }

  // A directory with something tracked in it is looked into, whatever ignores it.
  bool is_ignored(const Changed& item, Here& here) const {
    if (here.ignoring == nullptr || item.base_mode == GitMode::gitlink) return false;
    const bool is_directory = (item.mode & kTypeMask) == kDirectoryType;
    const std::optional<TreeEntry> tracked = tracked_entry(item, here);
    if (tracked && (tracked->mode == GitMode::tree) == is_directory) return false;
    return here.ignoring->ignores(item.name, is_directory);
  }

  void make_ready_unless_removed(NodeId directory) {
    try {
      overlay_.make_ready(directory);
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) throw;
    }
  }

  void collect(const OverlayState& state, const DirectoryBody& body, Tree& kept, std::vector<Changed>& changed) {
    if (body.listing)
      for (std::size_t index = 0; index < body.listing->size(); ++index)
        if (!body.overrides.contains(body.listing->entry(index).name)) kept.push_back(body.listing->entry(index));
    for (const auto& [name, edge] : body.overrides) {
      Changed item;
      item.name = name;
      item.node = edge.node;
      if (body.listing)
        if (const auto index = body.listing->find(name)) item.base_entry = body.listing->entry(*index);
      if (edge.node) {
        const Node& node = *state.nodes.at(edge.node);
        item.mode = node.mode;
        item.base = node.base;
        item.base_mode = node.base_mode;
        item.content = node.content;
        item.target = node.target;
        item.has_xattrs = std::any_of(node.xattrs.begin(), node.xattrs.end(), [](const auto& xattr) {
          return xattr.first != kOwnGitMark && xattr.first != kGitMaker;
        });
      }
      changed.push_back(std::move(item));
    }
  }

  void omit(const std::string& path, OmissionKind kind) { omitted_.push_back({path, kind}); }

  std::optional<TreeEntry> entry_of(const Changed& item, const std::string& path, Here& here) {
    const std::uint32_t type = item.mode & kTypeMask;
    const bool is_directory =
        item.node ? type == kDirectoryType : item.base_entry && item.base_entry->mode == GitMode::tree;
    if (!excludes_.empty() && excludes_.match(path, is_directory)) {
      omit(path, OmissionKind::excluded);
      return item.base_entry;
    }
    if (!item.node) return std::nullopt;
    if (git_refuses_name(item.name)) {
      if (!is_own_git_directory(item, path)) omit(path, OmissionKind::git_name);
      return std::nullopt;
    }
    if (is_ignored(item, here)) {
      omit(path, OmissionKind::ignored);
      return std::nullopt;
    }
    switch (type) {
      case kDirectoryType: return accepted(item, path, directory_entry(item, path, here));
      case kRegularType: return accepted(item, path, file_entry(item, path, here));
      case kSymlinkType: return accepted(item, path, symlink_entry(item, path));
      case 0140000: omit(path, OmissionKind::socket); return std::nullopt;
      case 0010000: omit(path, OmissionKind::fifo); return std::nullopt;
      default: omit(path, OmissionKind::device); return std::nullopt;
    }
  }

  bool is_own_git_directory(const Changed& item, const std::string& path) {
    if (path != ".git" || (item.mode & kTypeMask) != kDirectoryType) return false;
    auto now = overlay_.guarded.lock_shared();
    const auto node = now->nodes.find(item.node);
    return node != now->nodes.end() && node->second->xattrs.contains(kOwnGitMark);
  }

  // What git refuses leaves the path as it is in the base, whose own entry is the repository's business.
  std::optional<TreeEntry> accepted(const Changed& item, const std::string& path, std::optional<TreeEntry> entry) {
    if (!entry || entry == item.base_entry) return entry;
    const std::optional<OmissionKind> refused = why_git_refuses(quarantine_, *entry);
    if (!refused) return entry;
    omit(path, *refused);
    return item.base_entry;
  }

  void note_attributes(const Changed& item, const std::string& path, std::uint32_t usual_mode) {
    if (item.has_xattrs) omit(path, OmissionKind::xattrs);
    if ((item.mode & kPermissionMask) != (usual_mode & ~overlay_.options.umask)) omit(path, OmissionKind::mode);
  }

  std::optional<TreeEntry> directory_entry(const Changed& item, const std::string& path, Here& here) {
    if (item.base_mode == GitMode::gitlink) {
      auto now = overlay_.guarded.lock_shared();
      const auto node = now->nodes.find(item.node);
      if (node != now->nodes.end() && !node->second->directory->overrides.empty())
        omit(path, OmissionKind::inside_submodule);
      return TreeEntry{item.name, GitMode::gitlink, item.base};
    }
    note_attributes(item, path, 0777);
    Place place{.path = path, .name = item.name, .depth = here.place.depth + 1, .above = here.ignoring,
                .attributes_above = here.attributes};
    if (here.ignoring != nullptr) place.tracked = tree_of(tracked_entry(item, here));
    const std::size_t omitted_before = omitted_.size();
    const auto tree = build(item.node, place);
    if (tree) return TreeEntry{item.name, GitMode::tree, *tree};
    if (omitted_.size() == omitted_before) omit(path, OmissionKind::empty_directory);
    return std::nullopt;
  }

  std::optional<TreeEntry> file_entry(const Changed& item, const std::string& path, Here& here) {
    const bool executable = (item.mode & 0100) != 0;
    note_attributes(item, path, executable ? 0777 : 0666);
    const bool same_mode = item.base_mode != GitMode{} && (item.base_mode == GitMode::executable) == executable;
    const GitMode mode = same_mode ? item.base_mode : executable ? GitMode::executable : GitMode::regular;
    try {
      const SaidAttributes said = here.attributes != nullptr
                                      ? here.attributes->settings_of(item.name, check_in_attributes())
                                      : SaidAttributes();
      const BlobKind kind = is_for_lfs(said) ? BlobKind::lfs_pointer : BlobKind::bytes;
      if (const std::optional<ObjectId> blob = store(*item.content, quarantine_, overlay_.while_storing, kind)) {
        if (kind == BlobKind::bytes) note_conversions(item, path, said, *blob, here);
        return TreeEntry{item.name, mode, *blob};
      }
    } catch (const Error&) {
      check_readable(*item.content, path);
      throw;
    }
    damaged_.push_back(path);
    return std::nullopt;
  }

  // A file whose bytes are the base's is not what this session checks in.
  void note_conversions(const Changed& item, const std::string& path, const SaidAttributes& said, const ObjectId& blob,
                        Here& here) {
    if (said.empty() || blob == item.base) return;
    const std::optional<TreeEntry> tracked = tracked_entry(item, here);
    if (tracked && tracked->id == blob) return;
    const bool has_file = tracked && tracked->mode != GitMode::tree && tracked->mode != GitMode::gitlink;
    const auto open_tracked = [&] { return has_file ? quarantine_.open_blob(tracked->id) : nullptr; };
    for (const OmissionKind kind : missed_conversions(said, ContentSource(*item.content), open_tracked))
      omit(path, kind);
  }

  // What cannot be read is lost, and only that: whoever commits decides about it.
  static void check_readable(const Content& content, const std::string& path) {
    try {
      std::array<std::byte, 1> first{};
      content.read(0, first);
      content.usage();
    } catch (const Error& error) {
      throw unreadable(path, error);
    }
  }

  std::optional<TreeEntry> symlink_entry(const Changed& item, const std::string& path) {
    if (item.has_xattrs) omit(path, OmissionKind::xattrs);
    const ObjectId blob = item.target.empty() ? item.base : quarantine_.put_blob(StringSource(item.target));
    return TreeEntry{item.name, GitMode::symlink, blob};
  }

  Impl& overlay_;
  Quarantine& quarantine_;
  PathPatterns excludes_;
  IgnoringAbove* const ignoring_;
  AttributesAbove* const attributes_;
  std::vector<Omission> omitted_;
  std::vector<std::string> damaged_;  // the disk lost bytes of these files
};

std::optional<ObjectId> Overlay::Impl::store(Content& content, Quarantine& quarantine,
                                             const std::function<void()>& go_on, BlobKind kind) {
  if (const ObjectId base = content.unchanged_base(); !base.is_null()) return base;
  if (const auto known = content.known_blob(kind)) return *known;
  if (content.is_damaged()) return std::nullopt;
  const std::uint64_t version = content.version();
  const ContentSource source(content, go_on);
  const ObjectId blob = kind == BlobKind::bytes ? quarantine.put_blob(source) : quarantine.put_lfs_file(source);
  content.remember_blob(version, blob, kind);
  return blob;
}

void Overlay::while_storing(std::function<void()> go_on) { impl_->while_storing = std::move(go_on); }

BuiltTree Overlay::build_tree(Quarantine& quarantine, const std::vector<std::string>& excludes,
                              IgnoringAbove* ignoring, AttributesAbove* attributes) {
  Impl::TreeBuilder builder(*impl_, quarantine, PathPatterns(excludes), ignoring, attributes);
  BuiltTree built;
  built.tree = builder.build_root();
  builder.refuse_damaged();
  built.omitted = builder.take_omitted();
  return built;
}

// ---- others' entries into the overlay ----

// Every node at and below `top`, which has lost its last name, loses its row; what the kernel holds stays readable.
void Overlay::Impl::orphan_subtree(OverlayState& now, Node& top) {
  std::vector<Node*> remaining{&top};
  while (!remaining.empty()) {
    Node& node = *remaining.back();
    remaining.pop_back();
    if (node.recorded) now.dropped_nodes.insert(node.id);
    node.recorded = node.staged = node.dirty = false;
    if (node.is_directory()) {
      for (const auto& [name, edge] : node.directory->overrides) {
        now.dirty_edges[{node.id, name}] = true;
        const auto child = now.nodes.find(edge.node);
        if (child == now.nodes.end()) continue;
        std::erase(child->second->links, Link{node.id, name});
        if (child->second->links.empty()) remaining.push_back(child->second.get());
      }
      node.directory->overrides.clear();
      node.directory->added.clear();
    }
    destroy_if_unused(now, node);
  }
  now.change += 1;
}

// The directory of `path`'s parent; missing ones are made with `create`. {0, false}: not there.
std::pair<NodeId, bool> Overlay::Impl::directory_for(std::string_view path, bool create, std::vector<Stale>& stale) {
  NodeId directory = kRootNode;
  for (std::size_t begin = 0;;) {
    const std::size_t slash = path.find('/', begin);
    if (slash == std::string_view::npos) return {directory, true};
    const std::string name(path.substr(begin, slash - begin));
    begin = slash + 1;
    auto now = lock_ready(directory);
    Node& parent = live_directory(*now, directory);
    NodeId child = child_of(parent, name);
    bool usable = false;
    if (child) {
      const Found found = find(*now, child);
      usable = found.node ? found.node->is_directory()
                          : (describe(found, child).mode & kTypeMask) == kDirectoryType;
    }
    if (!usable) {
      if (!create) return {{}, false};
      if (child) detach(*now, parent, name, child);
      Node& made = new_node(*now, kDirectoryType | base_permissions(GitMode::tree), options.uid, options.gid);
      add_edge(*now, parent, name, made);
      touch(*now, parent);
      stale.push_back({directory, name});
      child = made.id;
    }
    directory = child;
  }
}

std::vector<Overlay::Stale> Overlay::replace(std::string_view path, const std::optional<TreeEntry>& entry) {
  std::vector<Stale> stale;
  const auto [directory, there] = impl_->directory_for(path, entry.has_value(), stale);
  if (!there) return stale;
  const std::string name(path.substr(path.rfind('/') + 1));
  const bool is_file = entry && (entry->mode == GitMode::regular || entry->mode == GitMode::group_writable ||
                                 entry->mode == GitMode::executable);
  const std::uint64_t size = is_file ? impl_->base_files.blob_size(entry->id) : 0;
  auto now = impl_->lock_ready(directory);
  Node& parent = impl_->live_directory(*now, directory);
  const std::uint64_t place = Impl::place_of(parent, name);
  if (const NodeId old = Impl::child_of(parent, name)) {
    Node& node = impl_->stage(*now, old);
    impl_->remove_edge(*now, parent, name, node);
    if (node.links.empty()) impl_->orphan_subtree(*now, node);
  }
  if (entry) {
    const std::uint32_t mode = impl_->describe(*entry, {}, {}).mode;
    Node& node = impl_->new_node(*now, mode, impl_->options.uid, impl_->options.gid);
    node.base = entry->id;
    node.base_mode = entry->mode;
    if (entry->mode == GitMode::tree) {
      node.directory->base_tree = entry->id;
      node.directory->times = {node.modified, std::nullopt};
    }
    if (is_file) node.content = impl_->new_content(Content::Form{entry->id, size, {}, {}});
    impl_->add_edge(*now, parent, name, node, place);
  }
  impl_->touch(*now, parent);
  stale.push_back({directory, name});
  return stale;
}

}  // namespace escrow::session
