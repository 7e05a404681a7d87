// Time as the core sees it, so that tests can choose it. Thread-safe.
#pragma once

#include <compare>
#include <cstdint>

namespace escrow::session {

// Seconds and nanoseconds since the epoch, as in struct timespec. 0 <= nanoseconds < 1e9; seconds may be negative.
struct Timestamp {
  std::int64_t seconds = 0;
  std::uint32_t nanoseconds = 0;
  friend auto operator<=>(const Timestamp&, const Timestamp&) = default;
};

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Timestamp now() const = 0;
};

// CLOCK_REALTIME_COARSE, as ext4 stamps its inodes (current_time() in fs/inode.c).
class SystemClock final : public Clock {
 public:
  Timestamp now() const override;
};

}  // namespace escrow::session
