// The power of a machine in memory: after a number of steps every write to its fake disks fails and does nothing.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "session/base/error.h"

namespace escrow::support {

class FakePower {
 public:
  // One thing that reaches the disk or its cache.
  void use() {
    if (left_.fetch_sub(1) <= 0) throw session::Error(session::Errc::input_output, "the power is gone");
  }
  void fail_after(std::int64_t steps) { left_ = steps; }
  void come_back() { left_ = kForever; }
  bool is_gone() const { return left_ <= 0; }

 private:
  static constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> left_ = kForever;
};

}  // namespace escrow::support
