#include "storage/host_files/host_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <utility>

#include "session/base/cross_device.h"
#include "session/base/error.h"
#include "storage/disk/beneath.h"
#include "storage/disk/durable_file.h"
#include "storage/host_files/host_directory_internal.h"

namespace escrow::storage {

using session::Attributes;
using session::Errc;
using session::Error;
using session::kRootNode;
using session::NodeId;

namespace {

constexpr std::uint32_t kPermissions = 07777;

Errc call_errc(int error) noexcept {
  switch (error) {
    case ENOENT:
    case ELOOP:
    case ESTALE:
      return Errc::not_found;
    case EEXIST:
      return Errc::exists;
    case ENOTDIR:
      return Errc::not_a_directory;
    case EISDIR:
      return Errc::is_a_directory;
    case ENOTEMPTY:
      return Errc::not_empty;
    case ENAMETOOLONG:
      return Errc::name_too_long;
    case EMLINK:
      return Errc::too_many_links;
    case EBUSY:
    case ETXTBSY:
      return Errc::busy;
    case ENODATA:
      return Errc::no_attribute;
    case ERANGE:
    case E2BIG:
      return Errc::result_too_large;
    default:
      return errc_of(error);
  }
}

session::Timestamp timestamp_of_host(const timespec& time) {
  return {time.tv_sec, static_cast<std::uint32_t>(time.tv_nsec)};
}

timespec time_to_set(const std::optional<session::Timestamp>& time, bool now) {
  timespec result{};
  result.tv_nsec = now ? UTIME_NOW : UTIME_OMIT;
  if (time) result = {time->seconds, static_cast<long>(time->nanoseconds)};
  return result;
}

UniqueFd duplicate(int descriptor) { return UniqueFd(require_done(::fcntl(descriptor, F_DUPFD_CLOEXEC, 3), "fcntl")); }

HostIdentity identity_of(const struct stat& status) { return {status.st_dev, status.st_ino, status.st_mode & S_IFMT}; }

UniqueFd open_root(const std::string& path, const std::string& what) {
  UniqueFd root(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) {
    throw Error(Errc::bad_request,
                what + ": the directory '" + session::quote_path(path) + "' cannot be opened: " + std::strerror(errno));
  }
  if (!open_beneath(root.get(), ".", O_PATH | O_DIRECTORY)) {
    throw Error(errno == ENOSYS ? Errc::unavailable : Errc::bad_request,
                what + ": the directory '" + session::quote_path(path) + "' cannot be walked: " +
                    (errno == ENOSYS ? "that needs openat2(2), Linux 5.6 or later" : std::strerror(errno)));
  }
  return root;
}

HostIdentity identity_of_descriptor(int descriptor) {
  struct stat status {};
  require_done(::fstat(descriptor, &status), "fstat");
  return identity_of(status);
}

}  // namespace

void fail_call(const char* call, int error) {
  const std::string message = std::string(call) + " in a directory of the mount table: " + std::strerror(error);
  if (error == EXDEV) throw session::CrossDevice(message);
  throw Error(call_errc(error), message);
}

DescriptorPath::DescriptorPath(int descriptor) {
  std::snprintf(text.data(), text.size(), "/proc/self/fd/%d", descriptor);
}

HostDirectory::HostDirectory(const std::string& path, Options options, const std::string& what)
    : options_(options), root_(open_root(path, what)), nodes_(identity_of_descriptor(root_.get())) {}

HostDirectory::~HostDirectory() = default;

std::string HostDirectory::host_path() const {
  std::array<char, PATH_MAX> path;
  const ssize_t size =
      require_done(::readlink(DescriptorPath(root_.get()).get(), path.data(), path.size()), "readlink");
  return {path.data(), static_cast<std::size_t>(size)};
}

// ---- finding ----

HostDirectory::Found HostDirectory::look_at(UniqueFd descriptor) const {
  struct stat status {};
  require_done(::fstat(descriptor.get(), &status), "fstat");
  Found found{std::move(descriptor), identity_of(status), {}};
  Attributes& attributes = found.attributes;
  attributes.mode = status.st_mode;
  attributes.links = static_cast<std::uint32_t>(status.st_nlink);
  attributes.uid = status.st_uid;
  attributes.gid = status.st_gid;
  attributes.rdev = static_cast<std::uint32_t>(status.st_rdev);
  attributes.size_bytes = static_cast<std::uint64_t>(status.st_size);
  attributes.blocks = static_cast<std::uint64_t>(status.st_blocks);
  attributes.accessed = timestamp_of_host(status.st_atim);
  attributes.modified = timestamp_of_host(status.st_mtim);
  attributes.changed = timestamp_of_host(status.st_ctim);
  attributes.volatile_bytes = options_.is_volatile;
  if (options_.shown) options_.shown(found.identity.inode, attributes);
  return found;
}

std::optional<HostDirectory::Found> HostDirectory::look_for(int directory, const std::string& name) const {
  UniqueFd found = open_beneath(directory, name.c_str(), O_PATH);
  if (found) return look_at(std::move(found));
  // EXDEV: another file system is mounted there.
  if (errno == ENOENT || errno == EXDEV || errno == ELOOP || errno == ESTALE) return std::nullopt;
  fail_call("lookup");
}

HostDirectory::Found HostDirectory::reach(NodeId node) {
  std::vector<HostNodes::Path> paths;
  HostIdentity identity;
  std::shared_ptr<const void> held;  // while its descriptor is duplicated
  int descriptor = -1;
  {
    auto nodes = nodes_.lock();
    const HostNode* const known = nodes->find(node);
    if (known == nullptr) throw Error(Errc::not_found, "a file of the mount table that nobody has looked up");
    identity = known->identity;
    if (known->file) {
      descriptor = known->file->descriptor.get();
      held = known->file;
    } else if (known->pinned) {
      descriptor = known->pinned->get();
      held = known->pinned;
    } else {
      paths = nodes->named_paths(node);
    }
  }
  if (held) return look_at(duplicate(descriptor));
  int error = ENOENT;
  for (const HostNodes::Path& path : paths) {
    UniqueFd opened = open_beneath(root_.get(), path.path.empty() ? "." : path.path.c_str(), O_PATH);
    if (opened) {
      Found found = look_at(std::move(opened));
      if (found.identity == identity) return found;
    } else if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != EXDEV && errno != ESTALE) {
      error = errno;
      continue;
    }
    nodes_.lock()->remove_name(node, path.name);  // somebody else has taken it away
  }
  fail_call("finding a file again", error);
}

UniqueFd HostDirectory::descriptor(NodeId node) { return reach(node).descriptor; }

HostDirectory::Place HostDirectory::place_of(NodeId node) {
  const HostIdentity identity = reach(node).identity;
  std::vector<HostNode::Name> names;
  {
    auto nodes = nodes_.lock();
    if (const HostNode* const known = nodes->find(node)) names = known->names;
  }
  for (const HostNode::Name& name : names) {
    UniqueFd in = directory(name.directory);
    const std::optional<Found> found = look_for(in.get(), name.name);
    if (found && found->identity == identity) return {std::move(in), name.name};
  }
  return {};
}

bool HostDirectory::is_open_for_writing(NodeId node) {
  auto nodes = nodes_.lock();
  const HostNode* const known = nodes->find(node);
  return known != nullptr && known->file && known->file->writable;
}

void HostDirectory::replace(NodeId node, UniqueFd descriptor) {
  const HostIdentity identity = identity_of_descriptor(descriptor.get());
  const auto pinned = std::make_shared<const UniqueFd>(std::move(descriptor));
  File closed;  // when the lock is gone
  auto nodes = nodes_.lock();
  nodes->become(node, identity);
  HostNode* const known = nodes->find(node);
  if (known == nullptr) return;
  closed = std::exchange(known->file, nullptr);
  if (known->names.empty()) known->pinned = pinned;
}

UniqueFd HostDirectory::directory(NodeId node) {
  Found found = reach(node);
  if (!S_ISDIR(found.attributes.mode)) fail_call("lookup", ENOTDIR);
  return std::move(found.descriptor);
}

Attributes HostDirectory::known(const Found& found, NodeId directory, std::string_view name) {
  Attributes attributes = found.attributes;
  attributes.node = nodes_.lock()->remember(found.identity, directory, name);
  return attributes;
}

session::Overlay::Names HostDirectory::names(NodeId node) {
  auto nodes = nodes_.lock();
  const HostNode* const known = nodes->find(node);
  if (known == nullptr) return {};
  return {nodes->paths(node), S_ISDIR(known->identity.type)};
}

std::vector<NodeId> HostDirectory::held_files() { return nodes_.lock()->held_files(); }

std::optional<Attributes> HostDirectory::lookup(NodeId directory_node, std::string_view name) {
  const UniqueFd in = directory(directory_node);
  const std::optional<Found> found = look_for(in.get(), std::string(name));
  if (!found) return std::nullopt;
  return known(*found, directory_node, name);
}

Attributes HostDirectory::attributes(NodeId node) {
  Attributes attributes = reach(node).attributes;
  attributes.node = node;
  return attributes;
}

std::string HostDirectory::read_link(NodeId node) {
  const Found found = reach(node);
  std::array<char, PATH_MAX> target;
  const ssize_t size = require_done(::readlinkat(found.descriptor.get(), "", target.data(), target.size()), "readlink");
  return {target.data(), static_cast<std::size_t>(size)};
}

// ---- changing ----

Attributes HostDirectory::change_attributes(NodeId node, const session::AttributeChange& change) {
  if (change.uid || change.gid || change.mode) {
    const Found found = reach(node);
    if (change.uid || change.gid) {
      require_done(::fchownat(found.descriptor.get(), "", change.uid.value_or(-1u), change.gid.value_or(-1u),
                              AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW),
                   "chown");
    }
    if (change.mode) {
      if (S_ISLNK(found.attributes.mode)) fail_call("chmod", EOPNOTSUPP);
      require_done(::chmod(DescriptorPath(found.descriptor.get()).get(), *change.mode & kPermissions), "chmod");
    }
  }
  if (change.size_bytes)
    require_done(::ftruncate(file(node, true)->descriptor.get(), static_cast<off_t>(*change.size_bytes)), "truncate");
  if (change.accessed || change.modified || change.accessed_now || change.modified_now) {
    const Found found = reach(node);
    const timespec times[2] = {time_to_set(change.accessed, change.accessed_now),
                               time_to_set(change.modified, change.modified_now)};
    require_done(::utimensat(found.descriptor.get(), "", times, AT_EMPTY_PATH), "utimensat");
  }
  return attributes(node);
}

Attributes HostDirectory::made(NodeId directory_node, int in, const std::string& name, std::uint32_t mode,
                               const session::Caller& caller, UniqueFd opened) {
  const bool is_file = static_cast<bool>(opened);
  try {
    UniqueFd seen = is_file ? duplicate(opened.get()) : open_beneath(in, name.c_str(), O_PATH);
    if (!seen) fail_call("lookup");
    Found found = look_at(std::move(seen));
    if (found.identity.type != (mode & S_IFMT)) fail_call("lookup", ENOENT);  // others were faster
    struct stat above {};
    require_done(::fstat(in, &above), "fstat");
    const gid_t group = (above.st_mode & S_ISGID) != 0 ? found.attributes.gid : caller.gid;
    if (caller.uid != found.attributes.uid || group != found.attributes.gid) {
      const int result = ::fchownat(found.descriptor.get(), "", caller.uid, group, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
      // Without the right to give files away it is this process's user who makes it.
      if (result != 0 && errno != EPERM && errno != EINVAL) fail_call("chown");
    }
    if (!S_ISLNK(mode)) {
      const std::uint32_t inherited = S_ISDIR(mode) ? found.attributes.mode & S_ISGID : 0;
      require_done(::chmod(DescriptorPath(found.descriptor.get()).get(), (mode & kPermissions) | inherited), "chmod");
    }
    found = look_at(std::move(found.descriptor));
    const Attributes attributes = known(found, directory_node, name);
    note_unsynced(attributes.node);
    if (is_file) keep(attributes.node, std::move(opened), true);
    return attributes;
  } catch (const Error&) {
    ::unlinkat(in, name.c_str(), S_ISDIR(mode) ? AT_REMOVEDIR : 0);
    throw;
  }
}

Attributes HostDirectory::make_node(NodeId directory_node, std::string_view name, std::uint32_t mode,
                                    std::uint32_t rdev, const session::Caller& caller) {
  if ((mode & S_IFMT) == 0) mode |= S_IFREG;
  // As overlayfs has it a whiteout is a device, but what asks for one here is hostile or mistaken.
  if (S_ISCHR(mode) || S_ISBLK(mode) || rdev != 0) fail_call("mknod", EPERM);
  const UniqueFd in = directory(directory_node);
  const std::string terminated(name);
  UniqueFd opened;
  if (S_ISDIR(mode)) {
    require_done(::mkdirat(in.get(), terminated.c_str(), 0700), "mkdir");
  } else if (S_ISREG(mode)) {
    opened = open_beneath(in.get(), terminated.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    if (!opened) fail_call("create", errno == ELOOP ? EEXIST : errno);
  } else {
    require_done(::mknodat(in.get(), terminated.c_str(), (mode & S_IFMT) | 0600, 0), "mknod");
  }
  return made(directory_node, in.get(), terminated, mode, caller, std::move(opened));
}

Attributes HostDirectory::make_symlink(NodeId directory_node, std::string_view name, std::string_view target,
                                       const session::Caller& caller) {
  const UniqueFd in = directory(directory_node);
  const std::string terminated(name);
  require_done(::symlinkat(std::string(target).c_str(), in.get(), terminated.c_str()), "symlink");
  return made(directory_node, in.get(), terminated, S_IFLNK, caller, {});
}

Attributes HostDirectory::link(NodeId node, NodeId directory_node, std::string_view name) {
  const Found found = reach(node);
  const UniqueFd in = directory(directory_node);
  require_done(::linkat(AT_FDCWD, DescriptorPath(found.descriptor.get()).get(), in.get(), std::string(name).c_str(),
                        AT_SYMLINK_FOLLOW),
               "link");
  {
    auto nodes = nodes_.lock();
    nodes->add_name(node, {directory_node, std::string(name)});
    if (HostNode* const linked = nodes->find(node)) linked->has_unsynced_name = true;
  }
  return attributes(node);
}

void HostDirectory::lost_name(Found found, NodeId directory_node, std::string_view name) {
  const auto pinned = std::make_shared<const UniqueFd>(std::move(found.descriptor));
  auto nodes = nodes_.lock();
  const std::optional<NodeId> node = nodes->find(found.identity);
  if (!node) return;
  nodes->remove_name(*node, {directory_node, std::string(name)});
  HostNode* const left = nodes->find(*node);
  if (left == nullptr) return;
  if (left->names.empty()) left->pinned = pinned;
  nodes->let_go(*node);
}

void HostDirectory::unlink(NodeId directory_node, std::string_view name) {
  const UniqueFd in = directory(directory_node);
  const std::string terminated(name);
  std::optional<Found> found = look_for(in.get(), terminated);
  if (!found) fail_call("unlink", ENOENT);
  require_done(::unlinkat(in.get(), terminated.c_str(), 0), "unlink");
  lost_name(std::move(*found), directory_node, name);
}

void HostDirectory::remove_directory(NodeId directory_node, std::string_view name) {
  const UniqueFd in = directory(directory_node);
  const std::string terminated(name);
  std::optional<Found> found = look_for(in.get(), terminated);
  if (!found) fail_call("rmdir", ENOENT);
  require_done(::unlinkat(in.get(), terminated.c_str(), AT_REMOVEDIR), "rmdir");
  lost_name(std::move(*found), directory_node, name);
}

void HostDirectory::rename(NodeId from_node, std::string_view name, NodeId to_node, std::string_view new_name,
                           session::RenameMode mode) {
  const UniqueFd from = directory(from_node), to = directory(to_node);
  const std::string old_text(name), new_text(new_name);
  std::optional<Found> moved = look_for(from.get(), old_text);
  if (!moved) fail_call("rename", ENOENT);
  std::optional<Found> replaced = look_for(to.get(), new_text);
  const bool exchanges = mode == session::RenameMode::exchange;
  const unsigned flags = exchanges ? RENAME_EXCHANGE : mode == session::RenameMode::no_replace ? RENAME_NOREPLACE : 0;
  require_done(::renameat2(from.get(), old_text.c_str(), to.get(), new_text.c_str(), flags), "rename");
  if (replaced && replaced->identity == moved->identity) return;  // two names of one file: both stay
  const auto take = [&](const Found& found, const HostNode::Name& before, const HostNode::Name& after) {
    auto nodes = nodes_.lock();
    const std::optional<NodeId> node = nodes->find(found.identity);
    if (!node) return;
    nodes->add_name(*node, after);
    nodes->remove_name(*node, before);
    if (HostNode* const known = nodes->find(*node)) known->has_unsynced_name = true;
  };
  const HostNode::Name old_place{from_node, old_text}, new_place{to_node, new_text};
  take(*moved, old_place, new_place);
  if (!replaced) return;
  if (exchanges) return take(*replaced, new_place, old_place);
  lost_name(std::move(*replaced), to_node, new_text);
}

void HostDirectory::note_unsynced(NodeId node) {
  auto nodes = nodes_.lock();
  if (HostNode* const known = nodes->find(node)) known->has_unsynced_name = true;
}

// ---- the rest ----

void HostDirectory::list(NodeId directory_node, std::uint64_t cookie, const std::function<bool(const Entry&)>& visit) {
  const UniqueFd in = directory(directory_node);
  const UniqueFd listing = open_beneath(in.get(), ".", O_RDONLY | O_DIRECTORY);
  if (!listing) fail_call("opendir");
  NodeId above = directory_node;
  {
    auto nodes = nodes_.lock();
    const HostNode* const known = nodes->find(directory_node);
    if (known != nullptr && !known->names.empty()) above = known->names.back().directory;
  }
  if (cookie != 0) require_done(::lseek(listing.get(), static_cast<off_t>(cookie), SEEK_SET), "lseek");
  const std::uint64_t device = identity_of_descriptor(in.get()).device;
  alignas(dirent64) std::array<char, 32768> buffer;
  for (;;) {
    const long size = require_done(::syscall(SYS_getdents64, listing.get(), buffer.data(), buffer.size()), "readdir");
    if (size == 0) return;
    for (long at = 0; at < size;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(buffer.data() + at);
      at += entry->d_reclen;
      const std::string name(entry->d_name);
      const auto next = static_cast<std::uint64_t>(entry->d_off);
      NodeId node = name == "." ? directory_node : above;
      std::uint32_t mode = S_IFDIR;
      if (name != "." && name != "..") {
        HostIdentity identity{device, entry->d_ino, static_cast<std::uint32_t>(DTTOIF(entry->d_type))};
        try {
          const std::optional<Found> found = look_for(in.get(), name);
          if (!found) continue;  // gone again, or another file system
          identity = found->identity;
        } catch (const Error& error) {
          if (error.code() != Errc::access_denied) throw;  // it may be listed, and not be searched
        }
        mode = identity.type;
        node = nodes_.lock()->remember(identity, directory_node, name);
      }
      if (!visit({name, next, node, mode})) return;
    }
  }
}

session::StagingArea::FreeSpace HostDirectory::free_space() {
  struct statvfs status {};
  require_done(::fstatvfs(root_.get(), &status), "statfs");
  return {status.f_frsize, status.f_blocks, status.f_bfree, status.f_bavail, status.f_files, status.f_ffree};
}

void HostDirectory::retain(NodeId node) {
  auto nodes = nodes_.lock();
  HostNode* const known = nodes->find(node);
  if (known == nullptr) throw Error(Errc::not_found, "a file of the mount table that was forgotten");
  known->is_held = true;
}

void HostDirectory::release(NodeId node) {
  File closed;                             // when the lock is gone,
  std::shared_ptr<const UniqueFd> pinned;  // as this
  auto nodes = nodes_.lock();
  HostNode* const known = nodes->find(node);
  if (known == nullptr || node == kRootNode) return;
  known->is_held = false;
  if (known->opens == 0) {
    pinned = std::exchange(known->pinned, nullptr);
    closed = std::exchange(known->file, nullptr);
  }
  nodes->let_go(node);
}

}  // namespace escrow::storage
