// What a symbolic link's target may be. A tree of git keeps any bytes as a target, but a system call takes 1 to 4095
// bytes without a NUL; the kernel ends a target at its first NUL. Pure functions. Sources: symlink(2), readlink(2).
#pragma once

#include <cstddef>
#include <string_view>

namespace escrow::session {

inline constexpr std::size_t kLongestTarget_bytes = 4095;  // PATH_MAX, without the NUL at its end

// Whether symlink(2) could have made a link with this target.
bool is_link_target(std::string_view target) noexcept;

// Throws Error{input_output} for any other target. To be called where a target goes to the kernel: the kernel would use
// other bytes than those that were judged.
void require_link_target(std::string_view target);

}  // namespace escrow::session
