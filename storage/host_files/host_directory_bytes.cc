// The bytes of HostDirectory's files, and their extended attributes.
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/limits.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <utility>

#include "storage/disk/beneath.h"
#include "storage/host_files/host_directory_internal.h"

namespace escrow::storage {

using session::Errc;
using session::Error;
using session::NodeId;

namespace {

constexpr std::string_view kShownXattrs = "user.";

int allocate_flags(session::AllocateMode mode) {
  switch (mode) {
    case session::AllocateMode::reserve:
      return 0;
    case session::AllocateMode::reserve_keep_size:
      return FALLOC_FL_KEEP_SIZE;
    case session::AllocateMode::punch_hole:
      return FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    case session::AllocateMode::zero_range:
      return FALLOC_FL_ZERO_RANGE;
    case session::AllocateMode::zero_range_keep_size:
      return FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
  }
  return 0;
}

}  // namespace

HostDirectory::File HostDirectory::keep(NodeId node, UniqueFd descriptor, bool writable) {
  auto opened = std::make_shared<HostFile>();
  opened->descriptor = std::move(descriptor);
  opened->writable = writable;
  File made = std::move(opened), replaced;
  std::vector<File> closed;  // when the lock is gone
  auto nodes = nodes_.lock();
  HostNode* const known = nodes->find(node);
  if (known == nullptr || (known->file && known->file->writable && !writable)) return made;
  replaced = std::exchange(known->file, made);
  if (known->opens == 0) closed = nodes->keep_open(node);
  return made;
}

HostDirectory::File HostDirectory::file(NodeId node, bool for_writing) {
  {
    auto nodes = nodes_.lock();
    const HostNode* const known = nodes->find(node);
    if (known != nullptr && known->file && (!for_writing || known->file->writable)) return known->file;
  }
  const Found found = reach(node);
  if (S_ISDIR(found.attributes.mode)) fail_call("open", EISDIR);
  if (!S_ISREG(found.attributes.mode)) fail_call("open", EOPNOTSUPP);
  UniqueFd opened(
      ::open(DescriptorPath(found.descriptor.get()).get(), (for_writing ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK));
  if (!opened) fail_call("open");
  return keep(node, std::move(opened), for_writing);
}

std::unique_ptr<session::RawFile> HostDirectory::open(NodeId node, session::OpenIntent intent) {
  if (intent.list) {
    directory(node);
    return nullptr;
  }
  {
    auto nodes = nodes_.lock();
    HostNode* const known = nodes->find(node);
    if (known == nullptr) throw Error(Errc::not_found, "a file of the mount table that nobody has looked up");
    ++known->opens;
  }
  try {
    file(node, intent.write);
  } catch (...) {
    close(node, intent);
    throw;
  }
  return nullptr;
}

void HostDirectory::close(NodeId node, session::OpenIntent intent) {
  if (intent.list) return;
  File closed;                             // when the lock is gone,
  std::shared_ptr<const UniqueFd> pinned;  // as this
  auto nodes = nodes_.lock();
  HostNode* const known = nodes->find(node);
  if (known == nullptr || known->opens == 0 || --known->opens > 0) return;
  pinned = known->pinned;
  closed = std::exchange(known->file, nullptr);
  nodes->let_go(node);
}

std::size_t HostDirectory::read(NodeId node, std::uint64_t offset, std::span<std::byte> out) {
  const File opened = file(node, false);
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count =
        ::pread(opened->descriptor.get(), out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (require_done(count, "read") == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

void HostDirectory::write(NodeId node, std::uint64_t offset, std::span<const std::byte> bytes, session::WriteOrigin) {
  const File opened = file(node, true);
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count =
        ::pwrite(opened->descriptor.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    done += static_cast<std::size_t>(require_done(count, "write"));
  }
}

void HostDirectory::allocate(NodeId node, session::AllocateMode mode, std::uint64_t offset, std::uint64_t length) {
  require_done(::fallocate(file(node, true)->descriptor.get(), allocate_flags(mode), static_cast<off_t>(offset),
                           static_cast<off_t>(length)),
               "fallocate");
}

std::optional<std::uint64_t> HostDirectory::seek(NodeId node, std::uint64_t offset, session::SeekTarget target) {
  const off_t found = ::lseek(file(node, false)->descriptor.get(), static_cast<off_t>(offset),
                              target == session::SeekTarget::data ? SEEK_DATA : SEEK_HOLE);
  if (found < 0 && errno == ENXIO) return std::nullopt;
  return static_cast<std::uint64_t>(require_done(found, "lseek"));
}

void HostDirectory::sync_file(NodeId node) {
  if (!options_.durable) return;
  std::optional<NodeId> named_in;
  {
    auto nodes = nodes_.lock();
    HostNode* const known = nodes->find(node);
    if (known == nullptr || !S_ISREG(known->identity.type)) return;
    if (known->has_unsynced_name && !known->names.empty()) named_in = known->names.back().directory;
  }
  require_done(::fsync(file(node, false)->descriptor.get()), "fsync");
  if (!named_in) return;
  sync_directory(*named_in);
  auto nodes = nodes_.lock();
  if (HostNode* const known = nodes->find(node)) known->has_unsynced_name = false;
}

void HostDirectory::sync_directory(NodeId node) {
  if (!options_.durable) return;
  const UniqueFd in = directory(node);
  const UniqueFd opened = open_beneath(in.get(), ".", O_RDONLY | O_DIRECTORY);
  if (!opened || ::fsync(opened.get()) != 0) fail_call("fsync");
}

std::optional<std::string> HostDirectory::xattr(NodeId node, std::string_view name) {
  if (!name.starts_with(kShownXattrs)) return std::nullopt;
  const Found found = reach(node);
  if (S_ISLNK(found.attributes.mode)) return std::nullopt;
  std::string value(XATTR_SIZE_MAX, '\0');
  const ssize_t size =
      ::getxattr(DescriptorPath(found.descriptor.get()).get(), std::string(name).c_str(), value.data(), value.size());
  if (size < 0 && errno == ENODATA) return std::nullopt;
  value.resize(static_cast<std::size_t>(require_done(size, "getxattr")));
  return value;
}

std::vector<std::string> HostDirectory::xattr_names(NodeId node) {
  const Found found = reach(node);
  std::vector<std::string> names;
  if (S_ISLNK(found.attributes.mode)) return names;
  std::string list(XATTR_LIST_MAX, '\0');
  const ssize_t size = ::listxattr(DescriptorPath(found.descriptor.get()).get(), list.data(), list.size());
  if (size < 0 && errno == EOPNOTSUPP) return names;
  list.resize(static_cast<std::size_t>(require_done(size, "listxattr")));
  for (std::size_t at = 0; at < list.size();) {
    std::string name(list.c_str() + at);
    at += name.size() + 1;
    if (name.starts_with(kShownXattrs)) names.push_back(std::move(name));
  }
  return names;
}

void HostDirectory::set_xattr(NodeId node, std::string_view name, std::string_view value, session::XattrMode mode) {
  const Found found = reach(node);
  if (S_ISLNK(found.attributes.mode)) fail_call("setxattr", EPERM);
  const int flags = mode == session::XattrMode::create    ? XATTR_CREATE
                    : mode == session::XattrMode::replace ? XATTR_REPLACE
                                                          : 0;
  require_done(::setxattr(DescriptorPath(found.descriptor.get()).get(), std::string(name).c_str(), value.data(),
                          value.size(), flags),
               "setxattr");
}

void HostDirectory::remove_xattr(NodeId node, std::string_view name) {
  const Found found = reach(node);
  if (S_ISLNK(found.attributes.mode)) fail_call("removexattr", EPERM);
  require_done(::removexattr(DescriptorPath(found.descriptor.get()).get(), std::string(name).c_str()), "removexattr");
}

}  // namespace escrow::storage
