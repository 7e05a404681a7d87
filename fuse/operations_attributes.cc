#include "fuse/operations_attributes.h"

#include <sys/stat.h>
#include <sys/xattr.h>

#include <cerrno>

#include "fuse/attributes.h"
#include "fuse/reply.h"
#include "session/base/error.h"
#include "session/base/link_target.h"

namespace escrow::fuse {
namespace {

using session::FileSystem;
using session::NodeId;

constexpr unsigned long kMaxName_bytes = 255;

// answer() for extended attributes: without them ENOSYS, which the kernel takes as "never ask again". A message per
// write(2), to ask for security.capability, is what that saves.
template <typename Compute>
void answer_xattr(fuse_req_t request, Operation operation, Compute compute) noexcept {
  if (service_of(request).xattrs) {
    answer(request, operation, compute);
  } else {
    service_of(request).counts.add(operation);
    fuse_reply_err(request, ENOSYS);
  }
}

// Only the user's own name space is served. Throws Error{not_supported} for the others.
std::string_view user_xattr(const char* name) {
  const std::string_view result(name);
  if (!result.starts_with("user.")) {
    throw session::Error(session::Errc::not_supported, "an extended attribute outside of user.*");
  }
  if (result == "user.") throw session::Error(session::Errc::invalid_argument, "an extended attribute without a name");
  return result;
}

session::XattrMode xattr_mode_of(FileSystem& file_system, NodeId node, std::string_view name, int flags) {
  switch (flags) {
    case 0:
      return session::XattrMode::any;
    case XATTR_CREATE:
      return session::XattrMode::create;
    case XATTR_REPLACE:
      return session::XattrMode::replace;
    // Never possible; as on ext4 the answer tells why.
    case XATTR_CREATE | XATTR_REPLACE:
      return file_system.xattr(node, name) ? session::XattrMode::create : session::XattrMode::replace;
    default:
      throw session::Error(session::Errc::invalid_argument, "setxattr(2) with unknown flags");
  }
}

// What a helper is told is for it alone: the kernel asks again for anybody else, and whenever it would refuse an open.
session::Attributes for_helper(fuse_req_t request, session::Attributes attributes) {
  if (service_of(request).odd_sizes.lock()->erase(attributes.node) > 0) ++attributes.size_bytes;
  attributes.uid = fuse_req_ctx(request)->uid;
  attributes.mode |= S_ISDIR(attributes.mode) ? S_IRUSR | S_IXUSR : S_IRUSR | S_IWUSR;
  attributes.volatile_bytes = true;
  return attributes;
}

// The times of what was written, which come with the pages (fuse_flush_times() in fs/fuse/dir.c). A program that sets
// the modification time alone looks the same.
bool is_write_back(const Service& service, int to_set) {
  return service.io.data == Data::writeback && to_set == (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_CTIME);
}

}  // namespace

void getattr(fuse_req_t request, fuse_ino_t node, fuse_file_info*) {
  answer(request, Operation::getattr, [&](FileSystem& file_system) {
    const session::Attributes attributes = file_system.attributes(NodeId{node});
    return AttributesReply{is_from_helper(request) ? for_helper(request, attributes) : attributes};
  });
}

void setattr(fuse_req_t request, fuse_ino_t node, struct stat* values, int to_set, fuse_file_info* file) {
  answer(request, Operation::setattr, [&](FileSystem& file_system) {
    const bool writes_back = is_write_back(service_of(request), to_set);
    // Set-id bits, which go with a write that is none.
    if (is_from_helper(request) && !writes_back) return AttributesReply{file_system.attributes(NodeId{node})};
    session::AttributeChange change = change_of(*values, to_set);
    change.by_descriptor = file != nullptr;
    if (writes_back) change.origin = session::WriteOrigin::page_cache;
    return AttributesReply{file_system.change_attributes(NodeId{node}, change)};
  });
}

void readlink(fuse_req_t request, fuse_ino_t node) {
  answer(request, Operation::readlink, [&](FileSystem& file_system) {
    LinkTargetReply reply{file_system.read_link(NodeId{node})};
    session::require_link_target(reply.target);
    return reply;
  });
}

void statfs(fuse_req_t request, fuse_ino_t) {
  answer(request, Operation::statfs, [&](FileSystem& file_system) {
    const auto space = file_system.free_space();
    struct statvfs values {};
    values.f_bsize = space.block_size;
    values.f_frsize = space.block_size;
    values.f_blocks = space.blocks;
    values.f_bfree = space.blocks_free;
    values.f_bavail = space.blocks_available;
    values.f_files = space.files;
    values.f_ffree = space.files_free;
    values.f_favail = space.files_free;
    values.f_namemax = kMaxName_bytes;
    return StatfsReply{values};
  });
}

void setxattr(fuse_req_t request, fuse_ino_t node, const char* name, const char* value, std::size_t size, int flags) {
  answer_xattr(request, Operation::setxattr, [&](FileSystem& file_system) {
    const std::string_view attribute = user_xattr(name);
    file_system.set_xattr(NodeId{node}, attribute, std::string_view(value, size),
                          xattr_mode_of(file_system, NodeId{node}, attribute, flags));
    return Done{};
  });
}

void getxattr(fuse_req_t request, fuse_ino_t node, const char* name, std::size_t size) {
  answer_xattr(request, Operation::getxattr, [&](FileSystem& file_system) {
    auto value = file_system.xattr(NodeId{node}, user_xattr(name));
    if (!value) throw session::Error(session::Errc::no_attribute, "an extended attribute that is not set");
    return XattrReply{std::move(*value), size};
  });
}

void listxattr(fuse_req_t request, fuse_ino_t node, std::size_t size) {
  answer_xattr(request, Operation::listxattr, [&](FileSystem& file_system) {
    std::string names;
    for (const std::string& name : file_system.xattr_names(NodeId{node}))
      if (name.starts_with("user.")) names.append(name).push_back('\0');
    return XattrReply{std::move(names), size};
  });
}

void removexattr(fuse_req_t request, fuse_ino_t node, const char* name) {
  answer_xattr(request, Operation::removexattr, [&](FileSystem& file_system) {
    file_system.remove_xattr(NodeId{node}, user_xattr(name));
    return Done{};
  });
}

}  // namespace escrow::fuse
