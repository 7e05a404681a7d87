// Attributes of nodes and of the file system, symbolic links' targets and extended attributes. Callbacks of libfuse's
// low-level interface; each replies exactly once and lets no exception out. Called from the threads of a mount.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fuse/libfuse.h"

namespace escrow::fuse {

void getattr(fuse_req_t request, fuse_ino_t node, fuse_file_info* file);
void setattr(fuse_req_t request, fuse_ino_t node, struct stat* values, int to_set, fuse_file_info* file);
void readlink(fuse_req_t request, fuse_ino_t node);
void statfs(fuse_req_t request, fuse_ino_t node);
void setxattr(fuse_req_t request, fuse_ino_t node, const char* name, const char* value, std::size_t size, int flags);
void getxattr(fuse_req_t request, fuse_ino_t node, const char* name, std::size_t size);
void listxattr(fuse_req_t request, fuse_ino_t node, std::size_t size);
void removexattr(fuse_req_t request, fuse_ino_t node, const char* name);

}  // namespace escrow::fuse
