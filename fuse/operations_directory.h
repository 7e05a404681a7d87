// Reading directories, and making their names durable. Callbacks of libfuse's low-level interface; each replies
// exactly once and lets no exception out. Called from the threads of a mount.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fuse/libfuse.h"

namespace escrow::fuse {

void opendir(fuse_req_t request, fuse_ino_t directory, fuse_file_info* file);
void releasedir(fuse_req_t request, fuse_ino_t directory, fuse_file_info* file);
void readdir(fuse_req_t request, fuse_ino_t directory, std::size_t size, off_t cookie, fuse_file_info* file);
void readdirplus(fuse_req_t request, fuse_ino_t directory, std::size_t size, off_t cookie, fuse_file_info* file);
void fsyncdir(fuse_req_t request, fuse_ino_t directory, int data_only, fuse_file_info* file);

}  // namespace escrow::fuse
