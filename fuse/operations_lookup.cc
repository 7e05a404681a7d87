#include "fuse/operations_lookup.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>

#include <cerrno>

#include "fuse/reply.h"
#include "session/base/error.h"

namespace escrow::fuse {
namespace {

using session::FileSystem;
using session::NodeId;

session::RenameMode rename_mode_of(unsigned flags) {
  switch (flags) {
    case 0: return session::RenameMode::replace;
    case RENAME_NOREPLACE: return session::RenameMode::no_replace;
    case RENAME_EXCHANGE: return session::RenameMode::exchange;
    default:
      throw session::Error(session::Errc::invalid_argument,
                           "renaming with flags other than RENAME_NOREPLACE or RENAME_EXCHANGE alone");
  }
}

// The kernel sends CREATE for a name it believes to be absent. Where the name has come meanwhile, open(2) without
// O_EXCL means that file.
struct CreatedFile {
  session::Attributes attributes;
  bool is_new;
};
CreatedFile create_or_find(FileSystem& file_system, NodeId directory, std::string_view name, mode_t mode,
                           int open_flags, const session::Caller& caller) {
  try {
    return {file_system.make_node(directory, name, S_IFREG | (mode & 07777), 0, caller), true};
  } catch (const session::Error& error) {
    if (error.code() != session::Errc::exists || (open_flags & O_EXCL) != 0) throw;
    const auto found = file_system.lookup(directory, name);
    if (!found || !S_ISREG(found->mode)) throw;
    return {*found, false};
  }
}

// Whether the kernel may believe what it is told of the directory's names.
bool keeps_names(fuse_req_t request, fuse_ino_t directory) {
  return !service_of(request).is_volatile(NodeId{directory});
}

}  // namespace

void lookup(fuse_req_t request, fuse_ino_t directory, const char* name) {
  answer(request, Operation::lookup, [&](FileSystem& file_system) {
    // A policy may hide the name from everybody else.
    if (is_from_helper(request)) {
      return LookupReply{file_system.own_lookup(NodeId{directory}, component(name)), false};
    }
    return LookupReply{file_system.lookup(NodeId{directory}, component(name)), keeps_names(request, directory)};
  });
}

void forget(fuse_req_t request, fuse_ino_t node, std::uint64_t lookups) {
  Service& service = service_of(request);
  service.counts.add(Operation::forget);
  service.inodes.forget(NodeId{node}, lookups);
  fuse_reply_none(request);
}

void forget_multi(fuse_req_t request, std::size_t count, fuse_forget_data* forgets) {
  Service& service = service_of(request);
  for (std::size_t i = 0; i < count; ++i) {
    service.counts.add(Operation::forget);
    service.inodes.forget(NodeId{forgets[i].ino}, forgets[i].nlookup);
  }
  fuse_reply_none(request);
}

void mknod(fuse_req_t request, fuse_ino_t directory, const char* name, mode_t mode, dev_t rdev) {
  answer(request, Operation::mknod, [&](FileSystem& file_system) {
    return EntryReply{file_system.make_node(NodeId{directory}, component(name), mode,
                                            static_cast<std::uint32_t>(rdev), caller_of(request)),
                      keeps_names(request, directory)};
  });
}

void mkdir(fuse_req_t request, fuse_ino_t directory, const char* name, mode_t mode) {
  answer(request, Operation::mkdir, [&](FileSystem& file_system) {
    // It has only looked the name up, as this call does first.
    if (is_from_helper(request)) throw session::Error(session::Errc::not_permitted, "a helper makes nothing");
    return EntryReply{file_system.make_node(NodeId{directory}, component(name), S_IFDIR | (mode & 07777), 0,
                                            caller_of(request)),
                      keeps_names(request, directory)};
  });
}

void symlink(fuse_req_t request, const char* target, fuse_ino_t directory, const char* name) {
  answer(request, Operation::symlink, [&](FileSystem& file_system) {
    return EntryReply{file_system.make_symlink(NodeId{directory}, component(name), target, caller_of(request)),
                      keeps_names(request, directory)};
  });
}

void link(fuse_req_t request, fuse_ino_t node, fuse_ino_t directory, const char* name) {
  answer(request, Operation::link, [&](FileSystem& file_system) {
    return EntryReply{file_system.link(NodeId{node}, NodeId{directory}, component(name)),
                      keeps_names(request, directory)};
  });
}

void unlink(fuse_req_t request, fuse_ino_t directory, const char* name) {
  answer(request, Operation::unlink, [&](FileSystem& file_system) {
    file_system.unlink(NodeId{directory}, component(name));
    return Done{};
  });
}

void rmdir(fuse_req_t request, fuse_ino_t directory, const char* name) {
  answer(request, Operation::rmdir, [&](FileSystem& file_system) {
    file_system.remove_directory(NodeId{directory}, component(name));
    return Done{};
  });
}

void rename(fuse_req_t request, fuse_ino_t directory, const char* name, fuse_ino_t new_directory,
            const char* new_name, unsigned flags) {
  answer(request, Operation::rename, [&](FileSystem& file_system) {
    file_system.rename(NodeId{directory}, component(name), NodeId{new_directory}, component(new_name),
                       rename_mode_of(flags));
    return Done{};
  });
}

void create(fuse_req_t request, fuse_ino_t directory, const char* name, mode_t mode, fuse_file_info* file) {
  Service& service = service_of(request);
  if (service.io.opens == Opens::none) {
    // The kernel goes on with MKNOD and an open that needs no message: then no RELEASE follows, either.
    service.counts.add(Operation::create);
    fuse_reply_err(request, ENOSYS);
    return;
  }
  answer(request, Operation::create, [&](FileSystem& file_system) {
    const CreatedFile made = create_or_find(file_system, NodeId{directory}, component(name), mode, file->flags,
                                            caller_of(request));
    return CreatedReply{made.attributes,
                        opened(request, service, made.attributes.node, file->flags, made.is_new),
                        keeps_names(request, directory)};
  });
}

}  // namespace escrow::fuse
