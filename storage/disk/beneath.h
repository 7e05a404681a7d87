// openat2(2) that cannot leave the directory it begins at: no "..", no symbolic link, no magic link of /proc and no
// other file system on the way, whoever changes what lies there meanwhile. Functions; thread-safe. Linux 5.6.
#pragma once

#include <cstdint>

#include "storage/disk/unique_fd.h"

namespace escrow::storage {

// `path` is relative, "." being the directory itself; its last component is not followed either, so that O_PATH opens a
// symbolic link as one. Empty with errno set; ELOOP for a link on the way, EXDEV for what would lead out.
UniqueFd open_beneath(int directory, const char* path, int flags, std::uint64_t mode = 0) noexcept;

}  // namespace escrow::storage
