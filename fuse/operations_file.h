// The bytes of files. Callbacks of libfuse's low-level interface; each replies exactly once and lets no exception
// out. Called from the threads of a mount. File handles are not used: what is open is counted by node (OpenFiles).
#pragma once

#include <cstddef>
#include <cstdint>

#include "fuse/libfuse.h"

namespace escrow::fuse {

void open(fuse_req_t request, fuse_ino_t node, fuse_file_info* file);
void release(fuse_req_t request, fuse_ino_t node, fuse_file_info* file);
void read(fuse_req_t request, fuse_ino_t node, std::size_t size, off_t offset, fuse_file_info* file);
void write(fuse_req_t request, fuse_ino_t node, const char* bytes, std::size_t size, off_t offset,
           fuse_file_info* file);
void fsync(fuse_req_t request, fuse_ino_t node, int data_only, fuse_file_info* file);
void fallocate(fuse_req_t request, fuse_ino_t node, int mode, off_t offset, off_t length, fuse_file_info* file);
void lseek(fuse_req_t request, fuse_ino_t node, off_t offset, int whence, fuse_file_info* file);
void copy_file_range(fuse_req_t request, fuse_ino_t from, off_t from_offset, fuse_file_info* from_file, fuse_ino_t to,
                     off_t to_offset, fuse_file_info* to_file, std::size_t length, int flags);
void ioctl(fuse_req_t request, fuse_ino_t node, unsigned command, void* argument, fuse_file_info* file,
           unsigned flags, const void* input, std::size_t input_size, std::size_t output_size);
void poll(fuse_req_t request, fuse_ino_t node, fuse_file_info* file, fuse_pollhandle* handle);

}  // namespace escrow::fuse
