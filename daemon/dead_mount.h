// Mounts whose server has died. Thread-safe.
#pragma once

#include <string>

namespace escrow::daemon {

// Whether the FUSE mount at `path` has no server any more: the kernel then answers ENOTCONN, and while it takes the
// connection down ECONNABORTED or, for a request on its way over io_uring, ECANCELED. Asked with statfs(2), for stat(2)
// may be answered from the kernel's cache, which outlives the server. Source: the kernel's fs/fuse.
bool is_dead_mount(const std::string& path);

}  // namespace escrow::daemon
