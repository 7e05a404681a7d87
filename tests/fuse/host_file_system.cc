#include "tests/fuse/host_file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "session/base/error.h"

namespace escrow::support {
namespace {

using namespace session;

[[noreturn]] void fail(int error) {
  const std::string what = std::strerror(error);
  switch (error) {
    case ENOENT:
      throw Error(Errc::not_found, what);
    case EEXIST:
      throw Error(Errc::exists, what);
    case ENOTDIR:
      throw Error(Errc::not_a_directory, what);
    case EISDIR:
      throw Error(Errc::is_a_directory, what);
    case ENOTEMPTY:
      throw Error(Errc::not_empty, what);
    case ENAMETOOLONG:
      throw Error(Errc::name_too_long, what);
    case EMLINK:
      throw Error(Errc::too_many_links, what);
    case EINVAL:
      throw Error(Errc::invalid_argument, what);
    case EPERM:
      throw Error(Errc::not_permitted, what);
    case ENOSPC:
      throw Error(Errc::no_space, what);
    case EFBIG:
      throw Error(Errc::file_too_large, what);
    case ENODATA:
      throw Error(Errc::no_attribute, what);
    case ENXIO:
      throw Error(Errc::no_such_offset, what);
    case EOPNOTSUPP:
      throw Error(Errc::not_supported, what);
    default:
      throw Error(Errc::input_output, what);
  }
}

template <typename Result>
Result require(Result result) {
  if (result < 0) fail(errno);
  return result;
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : number(require(::open(path.c_str(), flags | O_CLOEXEC))) {}
  ~Descriptor() { ::close(number); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int number;
};

timespec time_of(const std::optional<Timestamp>& time, bool now) {
  timespec result{};
  result.tv_nsec = now ? UTIME_NOW : UTIME_OMIT;
  if (time) result = {time->seconds, static_cast<long>(time->nanoseconds)};
  return result;
}

}  // namespace

HostFileSystem::HostFileSystem(const std::string& root) {
  const int number = require(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat values {};
  require(fstat(number, &values));
  root_inode_ = values.st_ino;
  state_.lock()->descriptors[kRootNode] = number;
}

HostFileSystem::~HostFileSystem() {
  const auto state = state_.lock();
  for (const auto& [node, number] : state->descriptors) ::close(number);
}

int HostFileSystem::descriptor(NodeId node) const {
  const auto state = state_.lock();
  const auto entry = state->descriptors.find(node);
  if (entry == state->descriptors.end()) throw Error(Errc::not_found, "no such node");
  return entry->second;
}

std::string HostFileSystem::path(NodeId node) const { return "/proc/self/fd/" + std::to_string(descriptor(node)); }

Attributes HostFileSystem::attributes_of(int number, NodeId node) const {
  struct stat values {};
  require(fstatat(number, "", &values, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW));
  Attributes result;
  result.node = node ? node : NodeId{values.st_ino == root_inode_ ? 1 : values.st_ino};
  result.mode = values.st_mode;
  result.links = static_cast<std::uint32_t>(values.st_nlink);
  result.uid = values.st_uid;
  result.gid = values.st_gid;
  result.rdev = static_cast<std::uint32_t>(values.st_rdev);
  result.size_bytes = static_cast<std::uint64_t>(values.st_size);
  result.blocks = static_cast<std::uint64_t>(values.st_blocks);
  const auto stamp = [](const timespec& t) { return Timestamp{t.tv_sec, static_cast<std::uint32_t>(t.tv_nsec)}; };
  result.accessed = stamp(values.st_atim);
  result.modified = stamp(values.st_mtim);
  result.changed = stamp(values.st_ctim);
  return result;
}

Attributes HostFileSystem::found(NodeId directory, const std::string& name) {
  const int number = require(openat(descriptor(directory), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  const Attributes result = attributes_of(number, {});
  auto state = state_.lock();
  const auto [entry, is_new] = state->descriptors.try_emplace(result.node, number);
  if (!is_new) ::close(number);
  return result;
}

std::optional<Attributes> HostFileSystem::lookup(NodeId directory, std::string_view name) {
  try {
    return found(directory, std::string(name));
  } catch (const Error& error) {
    if (error.code() == Errc::not_found) return std::nullopt;
    throw;
  }
}

Attributes HostFileSystem::attributes(NodeId node) { return attributes_of(descriptor(node), node); }

Attributes HostFileSystem::change_attributes(NodeId node, const AttributeChange& change) {
  const std::string name = path(node);
  if (change.uid || change.gid) {
    require(fchownat(descriptor(node), "", change.uid.value_or(-1u), change.gid.value_or(-1u), AT_EMPTY_PATH));
  }
  if (change.mode) require(chmod(name.c_str(), *change.mode));
  if (change.size_bytes) require(truncate(name.c_str(), static_cast<off_t>(*change.size_bytes)));
  if (change.accessed || change.modified || change.accessed_now || change.modified_now) {
    const timespec times[2] = {time_of(change.accessed, change.accessed_now),
                               time_of(change.modified, change.modified_now)};
    require(utimensat(AT_FDCWD, name.c_str(), times, 0));
  }
  return attributes(node);
}

std::string HostFileSystem::read_link(NodeId node) {
  char target[4096];
  const ssize_t size = require(readlinkat(descriptor(node), "", target, sizeof target));
  return {target, static_cast<std::size_t>(size)};
}

Attributes HostFileSystem::owned(NodeId directory, const std::string& name, const Caller& caller) {
  const Attributes made = found(directory, name);
  const Attributes parent = attributes(directory);
  const std::uint32_t group = parent.mode & S_ISGID ? parent.gid : caller.gid;
  require(fchownat(descriptor(directory), name.c_str(), caller.uid, group, AT_SYMLINK_NOFOLLOW));
  return attributes(made.node);
}

Attributes HostFileSystem::make_node(NodeId directory, std::string_view name, std::uint32_t mode, std::uint32_t rdev,
                                     const Caller& caller) {
  const std::string terminated(name);
  if (S_ISDIR(mode)) {
    require(mkdirat(descriptor(directory), terminated.c_str(), 0700));
  } else {
    require(mknodat(descriptor(directory), terminated.c_str(), (mode & S_IFMT) | 0600, rdev));
  }
  const Attributes made = owned(directory, terminated, caller);
  const std::uint32_t inherited = S_ISDIR(mode) ? made.mode & S_ISGID : 0;
  require(fchmodat(descriptor(directory), terminated.c_str(), (mode & 07777) | inherited, 0));
  return attributes(made.node);
}

Attributes HostFileSystem::make_symlink(NodeId directory, std::string_view name, std::string_view target,
                                        const Caller& caller) {
  require(symlinkat(std::string(target).c_str(), descriptor(directory), std::string(name).c_str()));
  return owned(directory, std::string(name), caller);
}

Attributes HostFileSystem::link(NodeId node, NodeId directory, std::string_view name) {
  require(linkat(descriptor(node), "", descriptor(directory), std::string(name).c_str(), AT_EMPTY_PATH));
  return attributes(node);
}

void HostFileSystem::unlink(NodeId directory, std::string_view name) {
  require(unlinkat(descriptor(directory), std::string(name).c_str(), 0));
}

void HostFileSystem::remove_directory(NodeId directory, std::string_view name) {
  require(unlinkat(descriptor(directory), std::string(name).c_str(), AT_REMOVEDIR));
}

void HostFileSystem::rename(NodeId directory, std::string_view name, NodeId new_directory, std::string_view new_name,
                            RenameMode mode) {
  const unsigned flags = mode == RenameMode::exchange     ? RENAME_EXCHANGE
                         : mode == RenameMode::no_replace ? RENAME_NOREPLACE
                                                          : 0;
  require(renameat2(descriptor(directory), std::string(name).c_str(), descriptor(new_directory),
                    std::string(new_name).c_str(), flags));
}

std::size_t HostFileSystem::read(NodeId node, std::uint64_t offset, std::span<std::byte> out) {
  const Descriptor file(path(node), O_RDONLY);
  return static_cast<std::size_t>(require(pread(file.number, out.data(), out.size(), static_cast<off_t>(offset))));
}

void HostFileSystem::write(NodeId node, std::uint64_t offset, std::span<const std::byte> bytes, WriteOrigin origin) {
  if (origin == WriteOrigin::page_cache) ++state_.lock()->page_cache_writes;
  const Descriptor file(path(node), O_WRONLY);
  require(pwrite(file.number, bytes.data(), bytes.size(), static_cast<off_t>(offset)));
}

void HostFileSystem::allocate(NodeId node, AllocateMode mode, std::uint64_t offset, std::uint64_t length) {
  int flags = 0;
  switch (mode) {
    case AllocateMode::reserve:
      flags = 0;
      break;
    case AllocateMode::reserve_keep_size:
      flags = FALLOC_FL_KEEP_SIZE;
      break;
    case AllocateMode::punch_hole:
      flags = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
      break;
    case AllocateMode::zero_range:
      flags = FALLOC_FL_ZERO_RANGE;
      break;
    case AllocateMode::zero_range_keep_size:
      flags = FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
      break;
  }
  const Descriptor file(path(node), O_WRONLY);
  require(fallocate(file.number, flags, static_cast<off_t>(offset), static_cast<off_t>(length)));
}

std::optional<std::uint64_t> HostFileSystem::seek(NodeId node, std::uint64_t offset, SeekTarget target) {
  const Descriptor file(path(node), O_RDONLY);
  const off_t result =
      lseek(file.number, static_cast<off_t>(offset), target == SeekTarget::data ? SEEK_DATA : SEEK_HOLE);
  if (result < 0 && errno == ENXIO) return std::nullopt;
  return static_cast<std::uint64_t>(require(result));
}

void HostFileSystem::sync_file(NodeId node) {
  const Descriptor file(path(node), O_RDONLY);
  require(fsync(file.number));
}

void HostFileSystem::sync_directory(NodeId node) { sync_file(node); }

void HostFileSystem::list(NodeId directory, std::uint64_t cookie, const std::function<bool(const Entry&)>& visit) {
  DIR* const listing = opendir(path(directory).c_str());
  if (listing == nullptr) fail(errno);
  struct CloseListing {
    DIR* listing;
    ~CloseListing() { closedir(listing); }
  } const close_listing{listing};
  if (cookie != 0) seekdir(listing, static_cast<long>(cookie));
  while (const dirent* entry = readdir(listing)) {
    const std::string name = entry->d_name;
    Attributes attributes_found;
    try {
      // ".." of the root would lead out of it.
      attributes_found = name == "." || name == ".." ? attributes(directory) : found(directory, name);
    } catch (const Error& error) {
      if (error.code() == Errc::not_found) continue;
      throw;
    }
    const std::uint64_t next = static_cast<std::uint64_t>(telldir(listing));
    if (!visit({name, next, attributes_found.node, attributes_found.mode})) return;
  }
}

std::optional<std::string> HostFileSystem::xattr(NodeId node, std::string_view name) {
  char value[65536];
  const ssize_t size = getxattr(path(node).c_str(), std::string(name).c_str(), value, sizeof value);
  if (size < 0 && errno == ENODATA) return std::nullopt;
  return std::string(value, static_cast<std::size_t>(require(size)));
}

std::vector<std::string> HostFileSystem::xattr_names(NodeId node) {
  char names[65536];
  const ssize_t size = require(listxattr(path(node).c_str(), names, sizeof names));
  std::vector<std::string> result;
  for (ssize_t at = 0; at < size; at += static_cast<ssize_t>(result.back().size()) + 1) result.emplace_back(names + at);
  return result;
}

void HostFileSystem::set_xattr(NodeId node, std::string_view name, std::string_view value, XattrMode mode) {
  const int flags = mode == XattrMode::create ? XATTR_CREATE : mode == XattrMode::replace ? XATTR_REPLACE : 0;
  require(setxattr(path(node).c_str(), std::string(name).c_str(), value.data(), value.size(), flags));
}

void HostFileSystem::remove_xattr(NodeId node, std::string_view name) {
  require(removexattr(path(node).c_str(), std::string(name).c_str()));
}

StagingArea::FreeSpace HostFileSystem::free_space() {
  struct statvfs values {};
  require(statvfs(path(kRootNode).c_str(), &values));
  return {values.f_frsize, values.f_blocks, values.f_bfree, values.f_bavail, values.f_files, values.f_ffree};
}

void HostFileSystem::retain(NodeId node) { ++state_.lock()->retained[node]; }

void HostFileSystem::release(NodeId node) {
  auto state = state_.lock();
  if (--state->retained[node] == 0) state->retained.erase(node);
}

std::vector<NodeId> HostFileSystem::files() {
  std::vector<NodeId> result;
  const auto state = state_.lock();
  for (const auto& [node, count] : state->retained) result.push_back(node);
  return result;
}

std::size_t HostFileSystem::retained() const { return state_.lock()->retained.size(); }

std::uint64_t HostFileSystem::page_cache_writes() const { return state_.lock()->page_cache_writes; }

}  // namespace escrow::support
