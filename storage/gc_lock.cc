#include "storage/gc_lock.h"

#include <fcntl.h>

#include <cerrno>

#include "storage/durable_file.h"

namespace escrow::storage {

UniqueFd take_gc_lock(const std::string& path, GcLockKind kind) {
  UniqueFd fd = open_or_throw(AT_FDCWD, path.c_str(), O_RDWR | O_CREAT, 0644, "open " + path);
  struct flock lock {};
  lock.l_type = kind == GcLockKind::shared ? F_RDLCK : F_WRLCK;
  lock.l_whence = SEEK_SET;
  while (::fcntl(fd.get(), F_OFD_SETLKW, &lock) != 0) {
    if (errno != EINTR) throw system_error(errno, "lock " + path);
  }
  return fd;
}

}  // namespace escrow::storage
