// The time at which requests under way are aborted when the service stops. Thread-safe. Source: timerfd_create(2).
#pragma once

#include <chrono>

#include "daemon/process/file_descriptor.h"

namespace escrow::daemon {

class ShutdownDeadline {
 public:
  // Throws Error{unavailable}.
  ShutdownDeadline();

  // The service stops: requests have this time from now on.
  void begin(std::chrono::milliseconds grace);
  // Whether that time has passed.
  bool is_over() const;
  // Throws Problem{unavailable} once it has: `what` is not done.
  void check(const char* what) const;
  // Becomes readable once it has, and is never read.
  int fd() const { return over_.get(); }

 private:
  const FileDescriptor over_;
};

}  // namespace escrow::daemon
