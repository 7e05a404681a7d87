// Tells what may take long that the service stops: what is under way has some time left, then it breaks itself off.
// Thread-safe. Source: timerfd_create(2).
#pragma once

#include <chrono>

#include "daemon/file_descriptor.h"

namespace escrow::daemon {

class Stopping {
 public:
  // Throws Error{unavailable}.
  Stopping();

  // What is under way has this time from now on.
  void begin(std::chrono::milliseconds grace);
  // Whether that is over.
  bool is_over() const;
  // Then throws Problem{unavailable}: `what` is not done.
  void check(const char* what) const;
  // Becomes readable then, and is never read.
  int fd() const { return over_.get(); }

 private:
  const FileDescriptor over_;
};

}  // namespace escrow::daemon
