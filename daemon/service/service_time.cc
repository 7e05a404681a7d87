#include "daemon/service/service_time.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace escrow::daemon {

namespace {

// The two clocks differ by their resolution, too.
constexpr std::int64_t kNoticed_ms = 1000;

std::int64_t in_ms(const session::Timestamp& time) { return time.seconds * 1000 + time.nanoseconds / 1'000'000; }

std::int64_t start_of_boot(const storage::ServiceStore& store, const std::string& boot, std::int64_t since_boot_ms,
                           std::int64_t wall_ms) {
  const std::optional<storage::ServiceStore::TimeMark> mark = store.time_mark();
  if (!mark) return wall_ms - since_boot_ms;
  const bool is_same_boot = !boot.empty() && mark->boot == boot && mark->since_boot_ms <= since_boot_ms;
  return mark->time_ms - (is_same_boot ? mark->since_boot_ms : since_boot_ms);
}

}  // namespace

ServiceTime::ServiceTime(storage::ServiceStore& store, const session::BootClock& boot_clock,
                         const session::Clock& wall_clock)
    : store_(store),
      boot_clock_(boot_clock),
      wall_clock_(wall_clock),
      boot_(boot_clock.boot()),
      started_ms_(start_of_boot(store, boot_, boot_clock.since_boot().count(), in_ms(wall_clock.now()))),
      shown_ahead_ms_(in_ms(wall_clock.now()) - now_ms()),
      awake_(Awake{.ticked_ms = now_ms()}) {
  save();
}

std::int64_t ServiceTime::now_ms() const { return started_ms_ + boot_clock_.since_boot().count(); }

std::int64_t ServiceTime::Awake::now(std::int64_t time_ms) const {
  return ticked_ms - missed_ms + std::min(time_ms - ticked_ms, kUnseen_ms);
}

std::int64_t ServiceTime::lease_now_ms() const {
  const auto awake = awake_.lock();
  return awake->now(now_ms());
}

void ServiceTime::tick() {
  auto awake = awake_.lock();
  const std::int64_t time_ms = now_ms();
  awake->missed_ms = time_ms - awake->now(time_ms);
  awake->ticked_ms = time_ms;
}

session::Timestamp ServiceTime::shown(std::int64_t time_ms) const {
  const std::int64_t ahead_ms = in_ms(wall_clock_.now()) - now_ms();
  if (std::abs(ahead_ms - shown_ahead_ms_.load()) >= kNoticed_ms) shown_ahead_ms_.store(ahead_ms);
  const std::int64_t wall_ms = time_ms + shown_ahead_ms_.load();
  return {.seconds = wall_ms / 1000, .nanoseconds = static_cast<std::uint32_t>(wall_ms % 1000) * 1'000'000};
}

session::Timestamp ServiceTime::shown_lease(std::int64_t lease_time_ms) const {
  const std::int64_t missed_ms = awake_.lock()->missed_ms;
  return shown(lease_time_ms + missed_ms);
}

void ServiceTime::save() {
  const std::int64_t since_boot_ms = boot_clock_.since_boot().count();
  store_.keep_time_mark({.boot = boot_, .since_boot_ms = since_boot_ms, .time_ms = started_ms_ + since_boot_ms});
}

}  // namespace escrow::daemon
