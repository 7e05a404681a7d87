// System calls of this very program that fail once, on request: what stands here comes before the C library's, also
// for the libraries that the program is linked with (ld.so(8)). Include it in one source of a program of its own.
//
// While armed, every call below is counted, and the one whose turn it is fails, having done nothing, with an errno that
// is likely for it. Thread-safe.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <string>

namespace escrow::support {

class FailingCalls {
 public:
  // The call that is the `turn`-th from now on fails.
  static void arm(long turn) {
    failed_ = nullptr;
    left_ = turn;
  }
  // Returns the name of the call that failed; null: so many there were not.
  static const char* disarm() {
    left_ = 0;
    return failed_;
  }
  // For the calls themselves.
  static bool fails(const char* name, int error) {
    if (left_ <= 0 || left_.fetch_sub(1) != 1) return false;
    failed_ = name;
    errno = error;
    return true;
  }
  template <typename Function>
  static Function next(const char* name) {
    return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
  }

 private:
  inline static std::atomic<long> left_ = 0;
  inline static std::atomic<const char*> failed_ = nullptr;
};

}  // namespace escrow::support

#define ESCROW_FAILING_CALL(result, name, error, parameters, arguments)                          \
  extern "C" result name parameters {                                                            \
    if (escrow::support::FailingCalls::fails(#name, error)) return static_cast<result>(-1);       \
    static const auto next = escrow::support::FailingCalls::next<result(*) parameters>(#name);   \
    return next arguments;                                                                       \
  }

ESCROW_FAILING_CALL(ssize_t, write, ENOSPC, (int fd, const void* bytes, std::size_t count), (fd, bytes, count))
ESCROW_FAILING_CALL(ssize_t, pwrite64, ENOSPC, (int fd, const void* bytes, std::size_t count, off64_t offset),
                    (fd, bytes, count, offset))
ESCROW_FAILING_CALL(ssize_t, pread64, EIO, (int fd, void* bytes, std::size_t count, off64_t offset),
                    (fd, bytes, count, offset))
ESCROW_FAILING_CALL(int, fsync, EIO, (int fd), (fd))
ESCROW_FAILING_CALL(int, fdatasync, EIO, (int fd), (fd))
ESCROW_FAILING_CALL(int, link, EDQUOT, (const char* from, const char* to) noexcept, (from, to))
ESCROW_FAILING_CALL(int, rename, ENOSPC, (const char* from, const char* to) noexcept, (from, to))
ESCROW_FAILING_CALL(int, unlink, EIO, (const char* path) noexcept, (path))
ESCROW_FAILING_CALL(int, mkdir, ENOSPC, (const char* path, mode_t mode) noexcept, (path, mode))
ESCROW_FAILING_CALL(int, dup3, EMFILE, (int from, int to, int flags) noexcept, (from, to, flags))
ESCROW_FAILING_CALL(int, memfd_create, EMFILE, (const char* name, unsigned flags) noexcept, (name, flags))

extern "C" int openat64(int directory, const char* path, int flags, ...) {
  if (escrow::support::FailingCalls::fails("openat64", EMFILE)) return -1;
  std::va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  static const auto next = escrow::support::FailingCalls::next<int (*)(int, const char*, int, ...)>("openat64");
  return next(directory, path, flags, mode);
}

extern "C" int open64(const char* path, int flags, ...) {
  if (escrow::support::FailingCalls::fails("open64", EMFILE)) return -1;
  std::va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  static const auto next = escrow::support::FailingCalls::next<int (*)(const char*, int, ...)>("open64");
  return next(path, flags, mode);
}
