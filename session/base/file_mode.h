#pragma once

#include <cstdint>

namespace escrow::session {

// The parts of a file's mode, as `st_mode` has them. Source: inode(7), "The file type and mode".
inline constexpr std::uint32_t kTypeMask = 0170000, kDirectoryType = 0040000, kRegularType = 0100000,
                               kSymlinkType = 0120000, kPermissionMask = 07777, kSetUser = 04000, kSetGroup = 02000;

}  // namespace escrow::session
