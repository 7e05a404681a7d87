#include "tests/support/system_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <utility>

namespace escrow::support {
namespace {

thread_local SystemCallWatcher* watched = nullptr;
thread_local int calls = 0;

std::string path_of(int descriptor) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t size = ::readlink(link.c_str(), path.data(), path.size());
  return size > 0 ? std::string(path.data(), static_cast<std::size_t>(size)) : std::string();
}

// An errno, or 0.
int ask(const char* name, std::string path) {
  if (watched == nullptr) return 0;
  SystemCallWatcher* const watcher = std::exchange(watched, nullptr);
  const int error = (*watcher)({++calls, name, std::move(path)});
  watched = watcher;
  return error;
}

template <typename Function, typename... Arguments>
int forward(const char* name, const std::string& path, Function next, Arguments... arguments) {
  if (const int error = ask(name, path); error != 0) {
    errno = error;
    return -1;
  }
  return next(arguments...);
}

template <typename Function>
Function next_of(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

bool changes(int flags) { return (flags & (O_CREAT | O_TRUNC)) != 0 || (flags & O_ACCMODE) != O_RDONLY; }

}  // namespace

WatchedSystemCalls::WatchedSystemCalls(SystemCallWatcher watcher) {
  calls = 0;
  watched = new SystemCallWatcher(std::move(watcher));
}
WatchedSystemCalls::~WatchedSystemCalls() { delete std::exchange(watched, nullptr); }
int WatchedSystemCalls::count() const { return calls; }

}  // namespace escrow::support

using escrow::support::changes;
using escrow::support::forward;
using escrow::support::next_of;
using escrow::support::path_of;

// With 64-bit offsets the headers give open() the name open64: the names are those that the linker sees.
#define OPENS(function)                                                                                     \
  extern "C" int watched_##function(const char* path, int flags, ...) __asm__(#function);                   \
  extern "C" int watched_##function(const char* path, int flags, ...) {                                     \
    va_list rest;                                                                                           \
    va_start(rest, flags);                                                                                  \
    const unsigned mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, unsigned) : 0;                \
    va_end(rest);                                                                                           \
    static const auto next = next_of<int (*)(const char*, int, ...)>(#function);                            \
    return changes(flags) ? forward("open", path, next, path, flags, mode) : next(path, flags, mode);       \
  }
OPENS(open)
OPENS(open64)

#define OPENS_AT(function)                                                                                  \
  extern "C" int watched_##function(int directory, const char* path, int flags, ...) __asm__(#function);    \
  extern "C" int watched_##function(int directory, const char* path, int flags, ...) {                      \
    va_list rest;                                                                                           \
    va_start(rest, flags);                                                                                  \
    const unsigned mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, unsigned) : 0;                \
    va_end(rest);                                                                                           \
    static const auto next = next_of<int (*)(int, const char*, int, ...)>(#function);                       \
    if (!changes(flags)) return next(directory, path, flags, mode);                                         \
    return forward("open", path, next, directory, path, flags, mode);                                       \
  }
OPENS_AT(openat)
OPENS_AT(openat64)

extern "C" int link(const char* from, const char* to) noexcept {
  static const auto next = next_of<int (*)(const char*, const char*)>("link");
  return forward("link", to, next, from, to);
}
extern "C" int linkat(int from_at, const char* from, int to_at, const char* to, int flags) noexcept {
  static const auto next = next_of<int (*)(int, const char*, int, const char*, int)>("linkat");
  return forward("link", to, next, from_at, from, to_at, to, flags);
}
extern "C" int rename(const char* from, const char* to) noexcept {
  static const auto next = next_of<int (*)(const char*, const char*)>("rename");
  return forward("rename", to, next, from, to);
}
extern "C" int unlink(const char* path) noexcept {
  static const auto next = next_of<int (*)(const char*)>("unlink");
  return forward("unlink", path, next, path);
}
extern "C" int rmdir(const char* path) noexcept {
  static const auto next = next_of<int (*)(const char*)>("rmdir");
  return forward("rmdir", path, next, path);
}
extern "C" int mkdir(const char* path, mode_t mode) noexcept {
  static const auto next = next_of<int (*)(const char*, mode_t)>("mkdir");
  return forward("mkdir", path, next, path, mode);
}
extern "C" int fsync(int descriptor) {
  static const auto next = next_of<int (*)(int)>("fsync");
  return forward("fsync", path_of(descriptor), next, descriptor);
}
extern "C" int fdatasync(int descriptor) {
  static const auto next = next_of<int (*)(int)>("fdatasync");
  return forward("fsync", path_of(descriptor), next, descriptor);
}
extern "C" int syncfs(int descriptor) noexcept {
  static const auto next = next_of<int (*)(int)>("syncfs");
  return forward("syncfs", path_of(descriptor), next, descriptor);
}
extern "C" int ftruncate(int descriptor, off_t length) noexcept {
  static const auto next = next_of<int (*)(int, off_t)>("ftruncate");
  return forward("ftruncate", path_of(descriptor), next, descriptor, length);
}
extern "C" int fallocate(int descriptor, int mode, off_t offset, off_t length) {
  static const auto next = next_of<int (*)(int, int, off_t, off_t)>("fallocate");
  return forward("fallocate", path_of(descriptor), next, descriptor, mode, offset, length);
}
extern "C" ssize_t write(int descriptor, const void* bytes, size_t size) {
  static const auto next = next_of<ssize_t (*)(int, const void*, size_t)>("write");
  if (const int error = escrow::support::ask("write", path_of(descriptor)); error != 0) {
    errno = error;
    return -1;
  }
  return next(descriptor, bytes, size);
}
