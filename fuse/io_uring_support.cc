#include "fuse/io_uring_support.h"

#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "fuse/libfuse.h"

namespace escrow::fuse {
namespace {

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
constexpr bool kLibraryHasIt = true;
#else
constexpr bool kLibraryHasIt = false;
#endif

// How many processors the kernel waits for: every one that could ever be plugged in. "0-3,8-11".
int possible_processors() {
  std::ifstream list("/sys/devices/system/cpu/possible");
  int count = 0, first = 0;
  while (list >> first) {
    int last = first;
    if (list.peek() == '-' && list.get() && !(list >> last)) return 0;
    count += last - first + 1;
    if (list.peek() != ',') break;
    list.get();
  }
  return count;
}

bool may_use_io_uring() {
  // Nothing is set up: what is allowed fails only for its arguments.
  return syscall(SYS_io_uring_setup, 0, nullptr) == -1 && errno != EPERM && errno != EACCES && errno != ENOSYS;
}

}  // namespace

IoUringObstacle io_uring_obstacle() {
  if (!kLibraryHasIt) return IoUringObstacle::library;
  std::ifstream parameter("/sys/module/fuse/parameters/enable_uring");
  char value = 0;
  if (!(parameter >> value)) return IoUringObstacle::kernel;
  if (value != 'Y') return IoUringObstacle::parameter;
  if (!may_use_io_uring()) return IoUringObstacle::forbidden;
  if (possible_processors() != get_nprocs_conf()) return IoUringObstacle::processors;
  return IoUringObstacle::none;
}

}  // namespace escrow::fuse
