// Which libfuse this is. Free functions, thread-safe, nothing is thrown.
#pragma once

#include <string>

namespace escrow::fuse {

// The version whose headers Escrow was compiled with, "3.18", and that of the library in the process, "3.18.3".
std::string libfuse_compiled();
std::string libfuse_running();

}  // namespace escrow::fuse
