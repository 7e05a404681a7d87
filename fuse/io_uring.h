// FUSE over io_uring: whether this build, machine and process can use it, and what Escrow needs of libfuse for it.
//
// With it requests and replies are exchanged in memory shared with the kernel, by one thread of libfuse for each
// processor, bound to it: a request costs no read(2) and writev(2), and its caller's processor answers it. FORGET,
// INTERRUPT and notifications still go through /dev/fuse. Free functions, thread-safe, nothing is thrown. Sources:
// the kernel's Documentation/filesystems/fuse/fuse-io-uring.rst and fs/fuse/dev_uring.c, libfuse's lib/fuse_uring.c.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "fuse/libfuse.h"

namespace escrow::fuse {

// What stands in the way, the first of them.
enum class IoUringObstacle {
  none,
  library,     // libfuse before 3.18 at compile time
  kernel,      // before Linux 6.14: it has no such parameter
  parameter,   // the kernel's parameter enable_uring is off
  forbidden,   // this process may not use io_uring (kernel.io_uring_disabled, or a seccomp filter)
  processors,  // libfuse would serve fewer processors than the kernel waits for, and the mount would hang
};
IoUringObstacle io_uring_obstacle();

// The options that make libfuse use it, for fuse_session_new(); what they cost is told in the .cc file.
std::string io_uring_options();

// The flag of INIT that asks for it; 0 when this libfuse has none.
unsigned io_uring_flag();

// Ends libfuse's ring threads, after the requests they have begun. Must come before fuse_session_destroy(), which
// leaves them running; no other thread may serve `session` any more.
void stop_io_uring(fuse_session* session);

// Whether `request` came over io_uring.
bool came_over_io_uring(fuse_req_t request);

// Where the reply to a READ or READDIR can be made in place, `size` bytes; nullopt when it has to be copied. Requests
// with data of their own have it there.
std::optional<std::span<std::byte>> ring_payload(fuse_req_t request, std::size_t size);

}  // namespace escrow::fuse
