// How many files a change adds, modifies and deletes. A plain value.
#pragma once

#include <cstdint>

namespace escrow::session {

struct ChangeCounts {
  std::uint64_t added = 0, modified = 0, deleted = 0;
  friend bool operator==(const ChangeCounts&, const ChangeCounts&) = default;
};

}  // namespace escrow::session
