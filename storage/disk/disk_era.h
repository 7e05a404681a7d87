// How to tell that a disk may have lost what was written to it and not synced, and a killed process has not.
#pragma once

#include <cstdint>
#include <string>

namespace escrow::storage {

// A number for the boot of this machine and for the attachment of the disk that `path` lies on. While it stays the
// same, every byte that any process wrote there is in the page cache or on the disk. Never 0. Sources: random(4),
// Documentation/ABI/stable/sysfs-block (diskseq), statx(2).
std::uint64_t disk_era(const std::string& path);

}  // namespace escrow::storage
