// The kernel's passthrough: reads, writes and mappings of an open file go to another open file, without a message.
//
// libfuse knows it from 3.17 on. Up to 3.16 the same is had through its public interface: with I/O of ours
// (fuse_session_custom_io) the reply to INIT asks for it and the replies to OPEN and CREATE name the backing file. All
// functions are thread-safe. Needs Linux 6.9 and CAP_SYS_ADMIN outside of user namespaces: see require_passthrough().
// Sources: linux/fuse.h, the kernel's fs/fuse/{passthrough,iomode}.c; rules of use: open_files.h.
#pragma once

#include <string>

#include "fuse/libfuse.h"

namespace escrow::fuse {

// In libfuse's init operation, on the thread that is about to send the reply.
void ask_for_passthrough(fuse_conn_info& connection);

// Gives `session` the mounted `device`, in place of fuse_session_mount("/dev/fd/N"). False: libfuse did not take it.
bool take_device_for_passthrough(fuse_session* session, int device);

// Throws Error{unavailable} saying why this machine or user cannot have it. INIT must have been answered already.
void require_passthrough(fuse_session* session, const std::string& mountpoint);

// Registers an open file with the kernel, which keeps it until close_backing(). The id, or a negative errno.
int open_backing(fuse_session* session, int descriptor) noexcept;
void close_backing(fuse_session* session, int backing_id) noexcept;

// While it lives, the reply this thread sends to an OPEN or CREATE makes the file one of passthrough.
class PassthroughReply {
 public:
  // 0: an ordinary reply.
  PassthroughReply(fuse_file_info& file, int backing_id) noexcept;
  ~PassthroughReply();
  PassthroughReply(const PassthroughReply&) = delete;
  PassthroughReply& operator=(const PassthroughReply&) = delete;
};

}  // namespace escrow::fuse
