#include "session/transaction/bring_over.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "session/base/file_mode.h"
#include "session/transaction/apply_changes.h"

namespace escrow::session {
namespace {

constexpr std::size_t kBroughtPieceBytes = std::size_t{1} << 20;

std::string parent_of_path(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

NodeTraits traits_of(FileSystem& files, NodeId node) {
  const Attributes attributes = files.attributes(node);
  NodeTraits traits{attributes.mode, attributes.uid, attributes.gid, attributes.rdev, {}};
  for (const std::string& name : files.xattr_names(node))
    if (auto value = files.xattr(node, name)) traits.xattrs.emplace_back(name, *std::move(value));
  std::sort(traits.xattrs.begin(), traits.xattrs.end());
  return traits;
}

}  // namespace

NodeTraits traits_at(FileSystem& files, std::string_view path) {
  NodeId node = kRootNode;
  while (!path.empty()) {
    if ((files.attributes(node).mode & kTypeMask) != kDirectoryType) return {};
    const std::size_t slash = path.find('/');
    const auto found = files.lookup(node, path.substr(0, slash));
    if (!found) return {};
    node = found->node;
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
  }
  return traits_of(files, node);
}

std::pair<NodeId, std::string> BringOver::place_for(const std::string& path) {
  const std::string parent = parent_of_path(path);
  if (!parent.empty() && !traits_at(to_, parent).is_directory()) {
    // A directory of the merge that neither side has alone does not exist: one of them has it.
    if (const auto source = node_at(from_, parent)) make(*source, parent, traits_of(from_, *source), nullptr);
  }
  return {node_at(to_, parent).value_or(kRootNode), name_of(path)};
}

void BringOver::take(const std::string& path, const NodeTraits& traits, const ByteSource* bytes) {
  if (path.empty()) return set_traits(path, traits);
  if (const auto source = node_at(from_, path)) make(*source, path, traits, bytes);
}

void BringOver::make(NodeId source, const std::string& path, const NodeTraits& traits, const ByteSource* bytes) {
  const Attributes was = from_.attributes(source);
  const auto [directory, name] = place_for(path);
  is_stale_(to_.replace(path, std::nullopt));
  const std::uint32_t type = was.mode & kTypeMask;
  NodeId made;
  if (const auto first = linked_.find(source); first != linked_.end()) {
    made = to_.link(first->second, directory, name).node;
  } else if (type == kRegularType) {
    made = make_file(source, path, traits, bytes);
  } else if (type == kSymlinkType) {
    made = to_.make_symlink(directory, name, from_.read_link(source), {traits.uid, traits.gid}).node;
  } else {
    made = to_.make_node(directory, name, was.mode, was.rdev, {traits.uid, traits.gid}).node;
  }
  if (bytes == nullptr && was.links > 1 && type != 0040000) linked_.emplace(source, made);
  apply_traits(traits, made);
  AttributeChange times;
  times.accessed = was.accessed;
  if (bytes == nullptr) times.modified = was.modified;
  to_.change_attributes(made, times);
  is_stale_({{directory, name}});
}

NodeId BringOver::make_file(NodeId source, const std::string& path, const NodeTraits& traits, const ByteSource* bytes) {
  if (const Overlay::Origin origin = from_.origin(source); bytes == nullptr && !origin.id.is_null()) {
    is_stale_(to_.replace(path, TreeEntry{name_of(path), origin.mode, origin.id}));
    return *node_at(to_, path);
  }
  const auto [directory, name] = place_for(path);
  const NodeId made = to_.make_node(directory, name, traits.mode, 0, {traits.uid, traits.gid}).node;
  files_.push_back(made);
  bytes == nullptr ? copy_bytes(source, made) : write_bytes(*bytes, made);
  return made;
}

void BringOver::write_bytes(const ByteSource& bytes, NodeId target) {
  std::vector<std::byte> piece(kBroughtPieceBytes);
  for (std::uint64_t at = 0; at < bytes.size();) {
    const std::size_t count = bytes.read(at, piece);
    if (count == 0) break;
    to_.write(target, at, std::span(piece).first(count), WriteOrigin::call);
    at += count;
  }
}

void BringOver::copy_bytes(NodeId source, NodeId target) {
  const std::uint64_t size = from_.attributes(source).size_bytes;
  std::vector<std::byte> piece(std::min<std::uint64_t>(size, kBroughtPieceBytes));
  for (std::uint64_t at = 0; at < size;) {
    const auto data = from_.seek(source, at, SeekTarget::data);
    if (!data) break;
    const std::uint64_t end = from_.seek(source, *data, SeekTarget::hole).value_or(size);
    for (at = *data; at < end;) {
      const std::size_t wanted = std::min<std::uint64_t>(piece.size(), end - at);
      const std::size_t count = from_.read(source, at, std::span(piece).first(wanted));
      if (count == 0) return;
      to_.write(target, at, std::span(piece).first(count), WriteOrigin::call);
      at += count;
    }
  }
  if (to_.attributes(target).size_bytes == size) return;
  AttributeChange cut;
  cut.size_bytes = size;
  to_.change_attributes(target, cut);
}

void BringOver::apply_traits(const NodeTraits& wanted, NodeId target) {
  const NodeTraits is = traits_of(to_, target);
  for (const auto& [name, value] : is.xattrs) {
    const auto is_it = [&name = name](const auto& one) { return one.first == name; };
    if (std::none_of(wanted.xattrs.begin(), wanted.xattrs.end(), is_it)) to_.remove_xattr(target, name);
  }
  for (const auto& [name, value] : wanted.xattrs) to_.set_xattr(target, name, value, XattrMode::any);
  AttributeChange change;
  if (is.uid != wanted.uid) change.uid = wanted.uid;
  if (is.gid != wanted.gid) change.gid = wanted.gid;
  // Last: a change of the owner clears set-id bits.
  if ((wanted.mode & kTypeMask) != kSymlinkType) change.mode = wanted.mode & kPermissionMask;
  to_.change_attributes(target, change);
}

void BringOver::set_traits(const std::string& path, const NodeTraits& traits) {
  const auto target = node_at(to_, path);
  if (!target) return;
  apply_traits(traits, *target);
  is_stale_({{*target, ""}});
}

void BringOver::remove(const std::string& path) {
  is_stale_(to_.replace(path, std::nullopt));
  for (std::string parent = parent_of_path(path); !parent.empty(); parent = parent_of_path(parent)) {
    if (!traits_at(to_, parent).is_directory() || traits_at(from_, parent).is_directory()) break;
    if (!names_in(to_, *node_at(to_, parent)).empty()) break;
    is_stale_(to_.replace(parent, std::nullopt));
  }
}

}  // namespace escrow::session
