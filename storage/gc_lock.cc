#include "storage/gc_lock.h"

#include <fcntl.h>

#include <cerrno>

#include "storage/durable_file.h"

namespace escrow::storage {
namespace {

UniqueFd lock(const std::string& path, LockKind kind, int command) {
  UniqueFd fd = open_or_throw(AT_FDCWD, path.c_str(), O_RDWR | O_CREAT, 0644, "open " + path);
  struct flock lock {};
  lock.l_type = kind == LockKind::shared ? F_RDLCK : F_WRLCK;
  lock.l_whence = SEEK_SET;
  while (::fcntl(fd.get(), command, &lock) != 0) {
    if (command == F_OFD_SETLK && (errno == EAGAIN || errno == EACCES)) return UniqueFd();
    if (errno != EINTR) throw system_error(errno, "lock " + path);
  }
  return fd;
}

// Everybody passes through it; whoever waits for the lock alone stands in it meanwhile.
std::string turnstile_of(const std::string& path) { return path + ".turn"; }

}  // namespace

UniqueFd lock_file(const std::string& path, LockKind kind) { return lock(path, kind, F_OFD_SETLKW); }

UniqueFd take_gc_lock(const std::string& path, LockKind kind) {
  const UniqueFd turn = lock_file(turnstile_of(path), kind);
  return lock_file(path, kind);
}

UniqueFd try_gc_lock_alone(const std::string& path) {
  const UniqueFd turn = lock(turnstile_of(path), LockKind::exclusive, F_OFD_SETLK);
  return turn ? lock_file(path, LockKind::exclusive) : UniqueFd();
}

}  // namespace escrow::storage
