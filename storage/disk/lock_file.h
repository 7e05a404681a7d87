// Files that are locked, not read: <state>/gc.lock, which whoever publishes objects shares, and which gc() has alone
// for the moment in which it looks for .keep files that nobody needs; <state>/upkeep.lock, under which gc() and the
// folding of packs take turns. OFD locks (fcntl(2)): they end with the process, however that ends, and work between
// threads as between processes.
#pragma once

#include <chrono>
#include <string>

#include "storage/disk/unique_fd.h"

namespace escrow::storage {

enum class LockKind { shared, exclusive };

// Any file, made if it is not there. Waits. The lock is held until the descriptor is closed. Throws
// Error{damaged_repository} for a symbolic link, as try_lock_file() does.
UniqueFd lock_file(const std::string& path, LockKind kind);
// Whether somebody holds it, alone or not; false: it is not there.
bool is_locked(const std::string& path);
// Alone; nothing when others do not let go of it in this time. Nobody waits behind it meanwhile.
UniqueFd try_lock_file(const std::string& path, std::chrono::milliseconds patience = {});

}  // namespace escrow::storage
