#include "session/base/boot_clock.h"

#include <ctime>
#include <fstream>

namespace escrow::session {

std::chrono::milliseconds SystemBootClock::since_boot() const {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return std::chrono::milliseconds(time.tv_sec * 1000 + time.tv_nsec / 1'000'000);
}

std::string SystemBootClock::boot() const {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace escrow::session
