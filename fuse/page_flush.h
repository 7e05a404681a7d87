// Brings the pages that processes dirtied through mmap from the kernel's cache to the file system.
//
// Must not be called from a thread that serves requests: it waits for them. Thread-safe otherwise. Sources:
// open_by_handle_at(2); the kernel's fuse_flush() and fuse_launder_folio().
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "fuse/libfuse.h"
#include "session/ids.h"

namespace escrow::fuse {

// On return every page of `files` that was dirty at the call has been written. Nodes that the kernel does not hold
// are skipped: it has no pages of them. `device` is the mount's; the path is only a way to it, which an unmount closes.
void flush_pages(fuse_session* session, const std::string& mountpoint, dev_t device,
                 const std::vector<session::NodeId>& files);

}  // namespace escrow::fuse
