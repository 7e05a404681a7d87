#include "storage/gc_lock.h"

#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <thread>

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

// Everybody passes through it; whoever wants the lock alone stands in it meanwhile, but not longer than this: somebody
// may be publishing gigabytes, and the small commits of others do not wait for those.
std::string turnstile_of(const std::string& path) { return path + ".turn"; }
constexpr auto kLongestTurn = std::chrono::milliseconds(500);
constexpr auto kLookEvery = std::chrono::milliseconds(2);
constexpr auto kBetweenTurns = std::chrono::milliseconds(100);

}  // namespace

UniqueFd lock_file(const std::string& path, LockKind kind) { return lock(path, kind, F_OFD_SETLKW); }

UniqueFd take_gc_lock(const std::string& path, LockKind kind) {
  if (kind == LockKind::shared) {
    const UniqueFd turn = lock_file(turnstile_of(path), LockKind::shared);
    return lock_file(path, LockKind::shared);
  }
  for (;;) {
    if (UniqueFd alone = try_gc_lock_alone(path)) return alone;
    std::this_thread::sleep_for(kBetweenTurns);
  }
}

UniqueFd try_gc_lock_alone(const std::string& path) {
  const UniqueFd turn = lock(turnstile_of(path), LockKind::exclusive, F_OFD_SETLK);
  if (!turn) return UniqueFd();
  const auto deadline = std::chrono::steady_clock::now() + kLongestTurn;
  for (;;) {
    if (UniqueFd alone = lock(path, LockKind::exclusive, F_OFD_SETLK)) return alone;
    if (std::chrono::steady_clock::now() > deadline) return UniqueFd();
    std::this_thread::sleep_for(kLookEvery);
  }
}

}  // namespace escrow::storage
