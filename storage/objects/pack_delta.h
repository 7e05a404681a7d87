// git's deltas: instructions that make one object of another. Pure functions over values; thread-safe.
// Throws Error{damaged_repository} for what is no delta, before anything is allocated for its result.
// Source: gitformat-pack(5), "Deltified representation".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace escrow::storage {

// The first bytes of a delta that say how long its base and its result are; at most this many.
inline constexpr std::size_t kDeltaSizesBytes = 20;
struct DeltaSizes {
  std::uint64_t base_bytes = 0, result_bytes = 0;
};
// `delta` may be its beginning only.
DeltaSizes read_delta_sizes(std::string_view delta);

// What a delta of this length can make at most.
constexpr std::uint64_t most_that_a_delta_makes(std::uint64_t delta_bytes) { return delta_bytes * 0xffffff; }

// Of a whole delta, all of whose instructions are looked at.
DeltaSizes check_delta(std::string_view delta);
std::string apply_delta(std::string_view base, std::string_view delta);

}  // namespace escrow::storage
