// Makes a directory and those above it, where they are not there yet. Throws system_error() saying what failed: with
// that error passed over, a full disk would be told as a missing directory by whoever makes a file in it next.
#pragma once

#include <string>

namespace escrow::storage {

void make_directories(const std::string& path);

}  // namespace escrow::storage
