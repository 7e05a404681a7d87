#include "daemon/process/shutdown_deadline.h"

#include <poll.h>
#include <sys/timerfd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "api/problem.h"
#include "session/base/error.h"

namespace escrow::daemon {

ShutdownDeadline::ShutdownDeadline() : over_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!over_) throw session::Error(session::Errc::unavailable, std::string("no timer can be made: ") +
                                                                   std::strerror(errno));
}

void ShutdownDeadline::begin(std::chrono::milliseconds grace) {
  itimerspec timer{};
  timer.it_value.tv_sec = static_cast<time_t>(grace.count() / 1000);
  // Nothing at all would be a timer that never ends.
  timer.it_value.tv_nsec = static_cast<long>(grace.count() % 1000) * 1'000'000 + 1;
  ::timerfd_settime(over_.get(), 0, &timer, nullptr);
}

bool ShutdownDeadline::is_over() const {
  pollfd over{over_.get(), POLLIN, 0};
  return ::poll(&over, 1, 0) > 0;
}

void ShutdownDeadline::check(const char* what) const {
  if (!is_over()) return;
  throw api::Problem(api::ProblemCode::unavailable, std::string("the service stops, and ") + what +
                                                        " was broken off; nothing is lost, try again when it is back");
}

}  // namespace escrow::daemon
