#include "storage/disk/lock_file.h"

#include <fcntl.h>

#include <cerrno>
#include <thread>

#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"

namespace escrow::storage {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(2);

struct flock whole_file(LockKind kind) {
  struct flock lock {};
  lock.l_type = kind == LockKind::shared ? F_RDLCK : F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

UniqueFd lock(const std::string& path, LockKind kind, int command) {
  check_no_link(path);
  UniqueFd fd = open_or_throw(AT_FDCWD, path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0644, "open " + path);
  struct flock lock = whole_file(kind);
  while (::fcntl(fd.get(), command, &lock) != 0) {
    if (command == F_OFD_SETLK && (errno == EAGAIN || errno == EACCES)) return UniqueFd();
    if (errno != EINTR) throw system_error(errno, "lock " + path);
  }
  return fd;
}

}  // namespace

UniqueFd lock_file(const std::string& path, LockKind kind) { return lock(path, kind, F_OFD_SETLKW); }

bool is_locked(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd && errno == ENOENT) return false;
  struct flock lock = whole_file(LockKind::exclusive);
  if (!fd || ::fcntl(fd.get(), F_OFD_GETLK, &lock) != 0) throw system_error(errno, "examine the lock " + path);
  return lock.l_type != F_UNLCK;
}

UniqueFd try_lock_file(const std::string& path, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    if (UniqueFd alone = lock(path, LockKind::exclusive, F_OFD_SETLK)) return alone;
    if (std::chrono::steady_clock::now() >= deadline) return UniqueFd();
    std::this_thread::sleep_for(kLookEvery);
  }
}

}  // namespace escrow::storage
