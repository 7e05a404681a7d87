// <state>/gc.lock: whoever publishes objects shares it, gc() and the folding of packs have it alone. OFD locks
// (fcntl(2)): they end with the process, however that ends, and work between threads as between processes.
#pragma once

#include <string>

#include "storage/unique_fd.h"

namespace escrow::storage {

enum class LockKind { shared, exclusive };

// Any file, made if it is not there. Waits. The lock is held until the descriptor is closed.
UniqueFd lock_file(const std::string& path, LockKind kind);

// Waits. Whoever wants it alone is next, so that publishers that follow one another closely do not keep it out for
// good; and nobody waits long behind one who waits for a long publication.
UniqueFd take_gc_lock(const std::string& path, LockKind kind);
// Alone; nothing when another has it alone or wants it, or when those who share it do not let go in half a second.
UniqueFd try_gc_lock_alone(const std::string& path);

}  // namespace escrow::storage
