#include "session/base/clock.h"

#include <ctime>

namespace escrow::session {

Timestamp SystemClock::now() const {
  timespec time{};
  clock_gettime(CLOCK_REALTIME_COARSE, &time);
  return {time.tv_sec, static_cast<std::uint32_t>(time.tv_nsec)};
}

}  // namespace escrow::session
