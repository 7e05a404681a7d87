#include "storage/gc_lock.h"

#include <fcntl.h>

#include <cerrno>

#include "storage/durable_file.h"

namespace escrow::storage {

namespace {

UniqueFd lock(const std::string& path, GcLockKind kind, int command) {
  UniqueFd fd = open_or_throw(AT_FDCWD, path.c_str(), O_RDWR | O_CREAT, 0644, "open " + path);
  struct flock lock {};
  lock.l_type = kind == GcLockKind::shared ? F_RDLCK : F_WRLCK;
  lock.l_whence = SEEK_SET;
  while (::fcntl(fd.get(), command, &lock) != 0) {
    if (command == F_OFD_SETLK && (errno == EAGAIN || errno == EACCES)) return UniqueFd();
    if (errno != EINTR) throw system_error(errno, "lock " + path);
  }
  return fd;
}

}  // namespace

UniqueFd take_gc_lock(const std::string& path, GcLockKind kind) { return lock(path, kind, F_OFD_SETLKW); }
UniqueFd try_gc_lock(const std::string& path, GcLockKind kind) { return lock(path, kind, F_OFD_SETLK); }

}  // namespace escrow::storage
