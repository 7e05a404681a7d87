// Whether FUSE over io_uring can be used here, and if not, why. Thread-safe, nothing is thrown. Sources: the kernel's
// Documentation/filesystems/fuse/fuse-io-uring.rst and fs/fuse/dev_uring.c, io_uring_setup(2).
#pragma once

namespace escrow::fuse {

// What stands in the way, the first of them.
enum class IoUringObstacle {
  none,
  library,     // libfuse before 3.18 at compile time
  kernel,      // before Linux 6.14: it has no such parameter
  parameter,   // the kernel's parameter enable_uring is off
  forbidden,   // this process may not use io_uring (kernel.io_uring_disabled, or a seccomp filter)
  processors,  // libfuse would serve fewer processors than the kernel waits for, and the mount would hang
};
IoUringObstacle io_uring_obstacle();

}  // namespace escrow::fuse
