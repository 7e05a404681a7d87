// A clock that stands still until a test moves it. Thread-safe.
#pragma once

#include "session/base/clock.h"
#include "session/base/synchronized.h"

namespace escrow::support {

class ManualClock final : public session::Clock {
 public:
  explicit ManualClock(session::Timestamp start = {1'700'000'000, 0}) : now_(start) {}

  session::Timestamp now() const override { return *now_.lock_shared(); }
  void set(session::Timestamp now) { *now_.lock() = now; }
  void advance_s(std::int64_t seconds) { now_.lock()->seconds += seconds; }
  void advance_ns(std::uint64_t nanoseconds) {
    auto now = now_.lock();
    const std::uint64_t total = now->nanoseconds + nanoseconds;
    now->seconds += static_cast<std::int64_t>(total / 1'000'000'000);
    now->nanoseconds = static_cast<std::uint32_t>(total % 1'000'000'000);
  }

 private:
  session::SharedSynchronized<session::Timestamp> now_;  // self-locking
};

}  // namespace escrow::support
