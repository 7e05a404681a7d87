#include "fuse/library.h"

#include "fuse/libfuse.h"

namespace escrow::fuse {

std::string libfuse_compiled() {
  return std::to_string(FUSE_MAJOR_VERSION) + "." + std::to_string(FUSE_MINOR_VERSION);
}

std::string libfuse_running() { return fuse_pkgversion(); }

}  // namespace escrow::fuse
