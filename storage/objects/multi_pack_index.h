// Which packs git's multi-pack-index names: they must not go while it is there. A function; thread-safe. Source:
// gitformat-pack(5), gitformat-chunk(5).
#pragma once

#include <set>
#include <string>

namespace escrow::storage {

// The names ("pack-1234") of the packs in <objects>/pack/multi-pack-index; empty: there is none. Throws
// Error{damaged_repository} when it cannot be read.
std::set<std::string> packs_in_multi_pack_index(const std::string& objects);

}  // namespace escrow::storage
