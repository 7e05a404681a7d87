// FUSE over io_uring as libfuse does it: requests and replies are exchanged in memory shared with the kernel, by one
// thread of libfuse for each processor, bound to it, which answers what the programs on that processor ask. FORGET,
// INTERRUPT and notifications still go through /dev/fuse.
//
// Free functions, thread-safe, nothing is thrown. With a libfuse before 3.18 they do nothing. Sources: libfuse's
// lib/fuse_uring.c, the kernel's fs/fuse/dev_uring.c.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "fuse/libfuse.h"

namespace escrow::fuse {

// The options that make libfuse use it, for fuse_session_new().
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
