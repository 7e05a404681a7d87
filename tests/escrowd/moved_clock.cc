// Loaded before the C library (LD_PRELOAD): the clocks of the process are ahead of the machine's by as many seconds as
// the file of MOVED_CLOCK says at that moment, two numbers of 64 bits: for the wall clock, which somebody sets, and for
// the time since the machine was started, in which it has slept.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace {

struct Ahead {
  volatile std::int64_t wall_s, boot_s;
};

const Ahead& ahead() {
  static Ahead none{0, 0};
  static const Ahead* const found = [] {
    const char* path = std::getenv("MOVED_CLOCK");
    const int file = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
    void* there = file < 0 ? MAP_FAILED : ::mmap(nullptr, sizeof(Ahead), PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) ::close(file);
    return there == MAP_FAILED ? &none : static_cast<const Ahead*>(there);
  }();
  return *found;
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  if (::syscall(SYS_clock_gettime, clock, now) != 0) return -1;
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += ahead().wall_s;
  if (clock == CLOCK_BOOTTIME) now->tv_sec += ahead().boot_s;
  return 0;
}

extern "C" time_t time(time_t* at) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (at != nullptr) *at = now.tv_sec;
  return now.tv_sec;
}

extern "C" int gettimeofday(timeval* at, void*) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  *at = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}
