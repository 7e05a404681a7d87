#include "daemon/dead_mount.h"

#include <sys/statfs.h>

#include <cerrno>

namespace escrow::daemon {

bool is_dead_mount(const std::string& path) {
  struct statfs about {};
  return ::statfs(path.c_str(), &about) != 0 &&
         (errno == ENOTCONN || errno == ECONNABORTED || errno == ECANCELED);
}

}  // namespace escrow::daemon
