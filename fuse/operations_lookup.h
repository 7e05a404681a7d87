// Names: looking them up, forgetting, making, linking, renaming and removing them. Callbacks of libfuse's low-level
// interface; each replies exactly once and lets no exception out. Called from the threads of a mount.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fuse/libfuse.h"

namespace escrow::fuse {

void lookup(fuse_req_t request, fuse_ino_t directory, const char* name);
void forget(fuse_req_t request, fuse_ino_t node, std::uint64_t lookups);
void forget_multi(fuse_req_t request, std::size_t count, fuse_forget_data* forgets);
void mknod(fuse_req_t request, fuse_ino_t directory, const char* name, mode_t mode, dev_t rdev);
void mkdir(fuse_req_t request, fuse_ino_t directory, const char* name, mode_t mode);
void symlink(fuse_req_t request, const char* target, fuse_ino_t directory, const char* name);
void link(fuse_req_t request, fuse_ino_t node, fuse_ino_t directory, const char* name);
void unlink(fuse_req_t request, fuse_ino_t directory, const char* name);
void rmdir(fuse_req_t request, fuse_ino_t directory, const char* name);
void rename(fuse_req_t request, fuse_ino_t directory, const char* name, fuse_ino_t new_directory,
            const char* new_name, unsigned flags);
void create(fuse_req_t request, fuse_ino_t directory, const char* name, mode_t mode, fuse_file_info* file);

}  // namespace escrow::fuse
