// The time by which escrowd measures leases, deadlines and the age of keys: milliseconds that only pass. Setting the
// machine's clock does not move it.
//
// It began with the wall clock, when the state directory was made, and goes on by the time since the machine was
// started: exactly within one boot, whatever happens to the service. While the machine is off it stands still, because
// no clock is left that could be believed: what would have run out meanwhile has the rest of its time afterwards.
//
// Leases are measured by that part of it during which clients could renew them: not while the machine slept or this
// process was stopped. Thread-safe. Throws what the store throws.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "session/base/boot_clock.h"
#include "session/base/clock.h"
#include "session/base/synchronized.h"
#include "storage/database/service_store.h"

namespace escrow::daemon {

class ServiceTime {
 public:
  // All must outlive this.
  ServiceTime(storage::ServiceStore& store, const session::BootClock& boot_clock, const session::Clock& wall_clock);

  std::int64_t now_ms() const;
  // Of leases. It goes on for at most kUnseen_ms without tick().
  std::int64_t lease_now_ms() const;
  static constexpr std::int64_t kUnseen_ms = 500;
  void tick();

  // When that is, was or will be, for people: by the wall clock as it is set now.
  session::Timestamp shown(std::int64_t time_ms) const;
  session::Timestamp shown_lease(std::int64_t lease_time_ms) const;
  // How far it has come. What passes after the last time is lost with the boot.
  void save();

 private:
  struct Awake {
    std::int64_t ticked_ms;
    std::int64_t missed_ms = 0;  // without ticks, since this process was started
    std::int64_t now(std::int64_t time_ms) const;
  };

  storage::ServiceStore& store_;  // constant, as the next four; self-locking
  const session::BootClock& boot_clock_;
  const session::Clock& wall_clock_;
  const std::string boot_;
  const std::int64_t started_ms_;  // what it was when this boot began
  // How far the wall clock is ahead of this one, as it was shown last: what is shown twice is to be the same.
  mutable std::atomic<std::int64_t> shown_ahead_ms_;
  mutable session::Synchronized<Awake> awake_;  // self-locking
};

}  // namespace escrow::daemon
