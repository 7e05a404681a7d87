// Time that nobody can set: since the machine was started, also while it slept (CLOCK_BOOTTIME, clock_gettime(2)).
// Another boot counts from the beginning. Thread-safe.
#pragma once

#include <chrono>
#include <string>

namespace escrow::session {

class BootClock {
 public:
  virtual ~BootClock() = default;
  virtual std::chrono::milliseconds since_boot() const = 0;
  // Of which boot; empty: that cannot be found out.
  virtual std::string boot() const = 0;
};

class SystemBootClock final : public BootClock {
 public:
  std::chrono::milliseconds since_boot() const override;
  std::string boot() const override;
};

}  // namespace escrow::session
