#include "session/decorators/mount_table.h"

#include <algorithm>
#include <utility>

#include "session/base/cross_device.h"
#include "session/base/error.h"
#include "session/base/file_mode.h"

namespace escrow::session {
namespace {

// What a directory of the table's own lists comes after everything else of it.
constexpr std::uint64_t kSpotCookies = std::uint64_t{1} << 62;

bool is_directory_node(const Attributes& attributes) { return (attributes.mode & kTypeMask) == kDirectoryType; }

// As in a directory that was removed.
[[noreturn]] void refuse_closed() { throw Error(Errc::not_found, "the entry is not in the mount table any more"); }

[[noreturn]] void refuse_busy(const std::string& path) {
  throw Error(Errc::busy, "'" + path + "' is in the mount table: it can be neither removed nor renamed nor replaced");
}

}  // namespace

void MountTable::check_paths(const std::vector<RepoPath>& paths) {
  if (paths.size() > kMostEntries) {
    throw Error(Errc::bad_request, "a mount table has at most " + std::to_string(kMostEntries) + " entries, not " +
                                       std::to_string(paths.size()));
  }
  std::vector<RepoPath> sorted(paths);
  std::sort(sorted.begin(), sorted.end());
  for (const RepoPath& path : sorted) {
    if (path.is_root())
      throw Error(Errc::bad_request, "an entry of the mount table cannot be at the root, where the repository is");
    RepoPath above;
    for (const std::string_view component : path.components()) {
      above = above.child(component);
      const auto [first, last] = std::equal_range(sorted.begin(), sorted.end(), above);
      if (last - first > (above == path ? 1 : 0)) {
        throw Error(Errc::bad_request,
                    "the mount table has '" + quote_path(above.text()) + "' " +
                        (above == path ? "twice" : "and, inside of it, '" + quote_path(path.text()) + "'") +
                        "; entries lie beside one another");
      }
    }
  }
}

MountTable::MountTable(FileSystem& repository, NamesOf repository_names, const WriteGate& gate,
                       std::vector<Entry> entries, Owner owner)
    : ForwardingFileSystem(repository),
      repository_names_(std::move(repository_names)),
      gate_(gate),
      owner_(owner),
      numbers_(Numbers{kFirstEntryRange, 1}) {
  Shown made = make_table(nullptr, std::move(entries), *numbers_.lock());
  *table_.lock() = std::move(made);
}

// ---- whose a node is ----

MountTable::Where MountTable::where(const Table& table, NodeId node) const {
  const std::uint64_t range = node.value >> kRangeBits;
  if (range == 0) return {Place::repository, nullptr, node};
  const NodeId inner{node.value & kInRange};
  if (range == kSpotRange && table.spots.contains(inner.value)) return {Place::on_the_way, nullptr, inner};
  if (const auto found = table.by_range.find(range); found != table.by_range.end())
    return {Place::entry, found->second, inner};
  const auto departed = departed_.lock_shared();
  const auto found = departed->by_range.find(range);
  if (found == departed->by_range.end())
    throw Error(Errc::not_found, "no entry of the mount table has this node");
  return {Place::entry, found->second, inner};
}

NodeId MountTable::outside(const Where& where, NodeId inner) {
  return where.place == Place::entry ? NodeId{(where.entry->range << kRangeBits) | inner.value} : inner;
}

Attributes MountTable::shown(const Where& where, Attributes attributes) {
  attributes.node = outside(where, attributes.node);
  return attributes;
}

bool MountTable::is_volatile(NodeId node) const {
  if (node.value >> kRangeBits == 0) return false;
  const Where at = where(*now(), node);
  return at.place == Place::entry && at.entry->entry.is_volatile;
}

MountTable::SpotNumber MountTable::spot_of(const Table& table, NodeId directory) const {
  if (directory == kRootNode) return 0;
  const Where at = where(table, directory);
  if (at.place == Place::on_the_way) return at.node.value;
  if (at.place == Place::entry || table.by_range.empty()) return std::nullopt;
  const auto known = known_.lock_shared();
  const auto found = known->find(directory);
  const bool is_one = found != known->end() && table.spots.contains(found->second);
  return is_one ? SpotNumber(found->second) : std::nullopt;
}

MountTable::SpotNumber MountTable::spot_at(const Table& table, NodeId directory, std::string_view name) const {
  const SpotNumber spot = spot_of(table, directory);
  if (!spot) return std::nullopt;
  const Spot& found = table.spots.at(*spot);
  const auto child = found.children.find(name);
  return child == found.children.end() ? SpotNumber() : SpotNumber(child->second);
}

std::optional<Attributes> MountTable::in_repository(const Table& table, std::uint64_t spot) {
  if (spot == 0) return Inner::attributes(kRootNode);
  const Spot& at = table.spots.at(spot);
  const std::optional<Attributes> parent = in_repository(table, at.parent);
  if (!parent || !is_directory_node(*parent)) return std::nullopt;
  return Inner::own_lookup(parent->node, at.name);
}

// What the repository has at a spot is asked for anew each time: an update of the session can bring it and take it.
Attributes MountTable::spot_attributes(const Table& table, std::uint64_t spot) {
  if (const std::shared_ptr<Live>& entry = table.spots.at(spot).entry) {
    const Where at{Place::entry, entry, kRootNode};
    return shown(at, files_of(at).attributes(kRootNode));
  }
  const std::optional<Attributes> found = in_repository(table, spot);
  if (found && is_directory_node(*found)) {
    if (spot != 0) known_.lock()->insert_or_assign(found->node, spot);
    return *found;
  }
  Attributes made;
  made.node = NodeId{(kSpotRange << kRangeBits) | spot};
  made.mode = kDirectoryType | 0555;
  made.uid = owner_.uid;
  made.gid = owner_.gid;
  made.accessed = made.modified = made.changed = owner_.time;
  return made;
}

bool MountTable::hides(const RepoPath& path) {
  const Shown table = now();
  const auto found = table->by_path.find(path.text());
  return found != table->by_path.end() && in_repository(*table, found->second).has_value();
}

std::vector<NodeId> MountTable::held_files() {
  std::vector<Where> writable;
  const auto add = [&writable](const std::shared_ptr<Live>& entry) {
    if (!entry->entry.read_only) writable.push_back({Place::entry, entry, kRootNode});
  };
  const Shown table = now();
  for (const auto& [range, entry] : table->by_range) add(entry);
  {
    const auto departed = departed_.lock_shared();
    for (const auto& [range, entry] : departed->by_range) add(entry);
  }
  std::vector<NodeId> held;
  for (const Where& at : writable)
    for (const NodeId node : files_of(at).held_files()) held.push_back(outside(at, node));
  return held;
}

Overlay::Names MountTable::names(NodeId node) {
  const Shown table = now();
  const Where at = where(*table, node);
  if (at.place == Place::repository) return repository_names_(node);
  if (at.place == Place::on_the_way) return {{table->spots.at(at.node.value).path}, true};
  if (!table->by_range.contains(at.entry->range)) return {{}, true};  // no path leads there
  Overlay::Names names = files_of(at).names(at.node);
  const std::string& root = at.entry->entry.path.text();
  for (std::string& path : names.paths) path = path.empty() ? root : join_path(root, path);
  return names;
}

// ---- what may be changed ----

void MountTable::require_writable(const Where& where, WriteOrigin origin) const {
  if (where.place == Place::on_the_way)
    throw Error(Errc::access_denied, "a directory of the mount table itself cannot be changed");
  if (where.place == Place::repository) return;
  if (where.entry->entry.read_only) {
    throw Error(Errc::access_denied, "'" + where.entry->entry.path.text() + "' is read-only in the mount table");
  }
  const WriteGate::Position position = gate_.position();
  if (position == WriteGate::Position::sealed ||
      (position == WriteGate::Position::draining && origin == WriteOrigin::call))
    throw Error(Errc::read_only, "the session is sealed");
}

MountTable::Where MountTable::room_for(const Table& table, NodeId directory, std::string_view name) const {
  if (const SpotNumber spot = spot_at(table, directory, name))
    throw Error(Errc::exists, "'" + table.spots.at(*spot).path + "' is in the mount table");
  const Where at = where(table, directory);
  if (is_closed(at)) refuse_closed();
  require_writable(at);
  return at;
}

void MountTable::require_removable(const Table& table, NodeId directory, std::string_view name) const {
  if (const SpotNumber spot = spot_at(table, directory, name)) refuse_busy(table.spots.at(*spot).path);
  const Where at = where(table, directory);
  if (is_closed(at)) refuse_closed();
  if (at.place == Place::on_the_way) throw Error(Errc::not_found, "there is no such name");
  require_writable(at);
}

// ---- the calls ----

std::optional<Attributes> MountTable::find(NodeId directory, std::string_view name, bool is_own) {
  const Shown table = now();
  if (const SpotNumber spot = spot_at(*table, directory, name)) return spot_attributes(*table, *spot);
  const Where at = where(*table, directory);
  if (at.place == Place::on_the_way || is_closed(at)) return std::nullopt;
  if (at.place == Place::repository)
    return is_own ? Inner::own_lookup(directory, name) : Inner::lookup(directory, name);
  auto found = is_own ? files_of(at).own_lookup(at.node, name) : files_of(at).lookup(at.node, name);
  if (found) found = shown(at, *found);
  return found;
}

std::optional<Attributes> MountTable::lookup(NodeId directory, std::string_view name) {
  return find(directory, name, false);
}

std::optional<Attributes> MountTable::own_lookup(NodeId directory, std::string_view name) {
  return find(directory, name, true);
}

Attributes MountTable::attributes(NodeId node) {
  const Shown table = now();
  const Where at = where(*table, node);
  if (at.place == Place::repository) return Inner::attributes(node);
  if (at.place == Place::entry) return shown(at, files_of(at).attributes(at.node));
  Attributes today = spot_attributes(*table, at.node.value);
  today.node = node;  // the kernel holds this one, whatever a lookup would find today
  return today;
}

Attributes MountTable::change_attributes(NodeId node, const AttributeChange& change) {
  const Where at = where(*now(), node);
  if (at.place == Place::repository) return Inner::change_attributes(node, change);
  require_writable(at, change.origin);
  return shown(at, files_of(at).change_attributes(at.node, change));
}

std::string MountTable::read_link(NodeId node) {
  const Where at = where(*now(), node);
  if (at.place == Place::repository) return Inner::read_link(node);
  if (at.place == Place::on_the_way) throw Error(Errc::invalid_argument, "a directory is no symbolic link");
  return files_of(at).read_link(at.node);
}

Attributes MountTable::make_node(NodeId directory, std::string_view name, std::uint32_t mode, std::uint32_t rdev,
                                 const Caller& caller) {
  const Where at = room_for(*now(), directory, name);
  if (at.place == Place::repository) return Inner::make_node(directory, name, mode, rdev, caller);
  return shown(at, files_of(at).make_node(at.node, name, mode, rdev, caller));
}

Attributes MountTable::make_symlink(NodeId directory, std::string_view name, std::string_view target,
                                    const Caller& caller) {
  const Where at = room_for(*now(), directory, name);
  if (at.place == Place::repository) return Inner::make_symlink(directory, name, target, caller);
  return shown(at, files_of(at).make_symlink(at.node, name, target, caller));
}

Attributes MountTable::link(NodeId node, NodeId directory, std::string_view name) {
  const Shown table = now();
  const Where from = where(*table, node), to = room_for(*table, directory, name);
  if (!from.is(to))
    throw CrossDevice("nothing is linked from one entry of the mount table into another");
  if (to.place == Place::repository) return Inner::link(node, directory, name);
  return shown(to, files_of(to).link(from.node, to.node, name));
}

void MountTable::unlink(NodeId directory, std::string_view name) {
  const Shown table = now();
  require_removable(*table, directory, name);
  const Where at = where(*table, directory);
  if (at.place == Place::repository) return Inner::unlink(directory, name);
  files_of(at).unlink(at.node, name);
}

void MountTable::remove_directory(NodeId directory, std::string_view name) {
  const Shown table = now();
  require_removable(*table, directory, name);
  const Where at = where(*table, directory);
  if (at.place == Place::repository) return Inner::remove_directory(directory, name);
  files_of(at).remove_directory(at.node, name);
}

void MountTable::rename(NodeId directory, std::string_view name, NodeId new_directory, std::string_view new_name,
                        RenameMode mode) {
  const Shown table = now();
  require_removable(*table, directory, name);
  if (const SpotNumber spot = spot_at(*table, new_directory, new_name)) refuse_busy(table->spots.at(*spot).path);
  const Where from = where(*table, directory), to = where(*table, new_directory);
  if (is_closed(to)) refuse_closed();
  require_writable(to);
  if (!from.is(to))
    throw CrossDevice("nothing is renamed from one entry of the mount table into another");
  if (to.place == Place::repository) return Inner::rename(directory, name, new_directory, new_name, mode);
  files_of(to).rename(from.node, name, to.node, new_name, mode);
}

std::unique_ptr<RawFile> MountTable::open(NodeId node, OpenIntent intent) {
  const Where at = where(*now(), node);
  if (at.place == Place::repository) return Inner::open(node, intent);
  if (at.place == Place::on_the_way) return nullptr;
  if (is_closed(at) && !intent.permitted) refuse_closed();
  if (intent.write) require_writable(at);
  return files_of(at).open(at.node, intent);
}

void MountTable::close(NodeId node, OpenIntent intent) {
  const Where at = where(*now(), node);
  if (at.place == Place::repository) return Inner::close(node, intent);
  if (at.place == Place::entry) files_of(at).close(at.node, intent);
}

std::size_t MountTable::read(NodeId node, std::uint64_t offset, std::span<std::byte> out) {
  const Where at = where(*now(), node);
  if (at.place == Place::repository) return Inner::read(node, offset, out);
  if (at.place == Place::on_the_way) throw Error(Errc::is_a_directory, "a directory cannot be read as a file");
  return files_of(at).read(at.node, offset, out);
}

void MountTable::write(NodeId node, std::uint64_t offset, std::span<const std::byte> bytes, WriteOrigin origin) {
  const Where at = where(*now(), node);
  if (at.place == Place::repository) return Inner::write(node, offset, bytes, origin);
  require_writable(at, origin);
  files_of(at).write(at.node, offset, bytes, origin);
}

void MountTable::pages_lost(NodeId node, std::uint64_t offset, std::uint64_t size_bytes) {
  const Where at = where(*now(), node);
  if (at.place == Place::repository) return Inner::pages_lost(node, offset, size_bytes);
  if (at.place == Place::entry) files_of(at).pages_lost(at.node, offset, size_bytes);
}

void MountTable::allocate(NodeId node, AllocateMode mode, std::uint64_t offset, std::uint64_t length) {
  const Where at = where(*now(), node);
  if (at.place == Place::repository) return Inner::allocate(node, mode, offset, length);
  require_writable(at);
  files_of(at).allocate(at.node, mode, offset, length);
}

std::optional<std::uint64_t> MountTable::seek(NodeId node, std::uint64_t offset, SeekTarget target) {
  const Where at = where(*now(), node);
  if (at.place == Place::repository) return Inner::seek(node, offset, target);
  if (at.place == Place::on_the_way) throw Error(Errc::is_a_directory, "a directory has neither data nor holes");
  return files_of(at).seek(at.node, offset, target);
}

void MountTable::sync_file(NodeId node) {
  const Where at = where(*now(), node);
  if (at.place == Place::repository) return Inner::sync_file(node);
  if (at.place == Place::entry) files_of(at).sync_file(at.node);
}

void MountTable::sync_directory(NodeId node) {
  const Where at = where(*now(), node);
  if (at.place == Place::repository) return Inner::sync_directory(node);
  if (at.place == Place::entry) files_of(at).sync_directory(at.node);
}

// The names of the table that this directory has, after the spot before `cookie`, in the order of their spots' numbers:
// it is the same for as long as they are there.
void MountTable::list_spots(const Table& table, std::uint64_t spot, std::uint64_t cookie,
                            const std::function<bool(const FileSystem::Entry&)>& visit) {
  std::vector<std::uint64_t> numbers;
  for (const auto& [name, child] : table.spots.at(spot).children)
    if (child > cookie) numbers.push_back(child);
  std::sort(numbers.begin(), numbers.end());
  for (const std::uint64_t number : numbers) {
    const Attributes found = spot_attributes(table, number);
    if (!visit({table.spots.at(number).name, kSpotCookies + number, found.node, found.mode})) return;
  }
}

void MountTable::list(NodeId directory, std::uint64_t cookie,
                      const std::function<bool(const FileSystem::Entry&)>& visit) {
  const Shown table = now();
  const Where at = where(*table, directory);
  if (at.place == Place::entry) {
    if (is_closed(at)) return;
    return files_of(at).list(at.node, cookie, [&](const FileSystem::Entry& entry) {
      return visit({entry.name, entry.next_cookie, outside(at, entry.node), entry.mode});
    });
  }
  const SpotNumber spot = spot_of(*table, directory);
  if (!spot) return Inner::list(directory, cookie, visit);
  const Spot& listed = table->spots.at(*spot);
  if (cookie >= kSpotCookies) return list_spots(*table, *spot, cookie - kSpotCookies, visit);
  bool goes_on = true;
  if (at.place == Place::repository) {
    Inner::list(directory, cookie, [&](const FileSystem::Entry& entry) {
      if (listed.children.contains(entry.name)) return true;
      return goes_on = visit(entry);
    });
  } else {
    if (cookie < 1) goes_on = visit({".", 1, directory, kDirectoryType});
    if (goes_on && cookie < 2) goes_on = visit({"..", 2, spot_attributes(*table, listed.parent).node, kDirectoryType});
  }
  if (goes_on) list_spots(*table, *spot, 0, visit);
}

std::optional<std::string> MountTable::xattr(NodeId node, std::string_view name) {
  const Where at = where(*now(), node);
  if (at.place == Place::repository) return Inner::xattr(node, name);
  return at.place == Place::entry ? files_of(at).xattr(at.node, name) : std::nullopt;
}

std::vector<std::string> MountTable::xattr_names(NodeId node) {
  const Where at = where(*now(), node);
  if (at.place == Place::repository) return Inner::xattr_names(node);
  return at.place == Place::entry ? files_of(at).xattr_names(at.node) : std::vector<std::string>();
}

void MountTable::set_xattr(NodeId node, std::string_view name, std::string_view value, XattrMode mode) {
  const Where at = where(*now(), node);
  if (at.place == Place::repository) return Inner::set_xattr(node, name, value, mode);
  require_writable(at);
  files_of(at).set_xattr(at.node, name, value, mode);
}

void MountTable::remove_xattr(NodeId node, std::string_view name) {
  const Where at = where(*now(), node);
  if (at.place == Place::repository) return Inner::remove_xattr(node, name);
  require_writable(at);
  files_of(at).remove_xattr(at.node, name);
}

void MountTable::retain(NodeId node) {
  const Where at = where(*now(), node);
  if (at.place == Place::repository) return Inner::retain(node);
  if (at.place != Place::entry) return;
  files_of(at).retain(at.node);
  ++at.entry->held;
}

void MountTable::release(NodeId node) {
  const Where at = where(*now(), node);
  if (at.place == Place::repository) return Inner::release(node);
  if (at.place != Place::entry) return;
  files_of(at).release(at.node);
  if (--at.entry->held == 0) drop_unheld(at.entry->range);
}

}  // namespace escrow::session
