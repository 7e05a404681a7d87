// <state>/gc.lock: whoever publishes objects shares it, gc() has it alone. An OFD lock (fcntl(2)): it ends with the
// process, however that ends, and works between threads as between processes.
#pragma once

#include <string>

#include "storage/unique_fd.h"

namespace escrow::storage {

enum class GcLockKind { shared, exclusive };

// Waits. The lock is held until the descriptor is closed.
UniqueFd take_gc_lock(const std::string& path, GcLockKind kind);
// Does not wait: nothing when somebody is in the way.
UniqueFd try_gc_lock(const std::string& path, GcLockKind kind);

}  // namespace escrow::storage
