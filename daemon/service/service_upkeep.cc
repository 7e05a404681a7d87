#include "daemon/service/service_upkeep.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "daemon/service/upkeep_process.h"

namespace escrow::daemon {

namespace {

using namespace std::chrono_literals;

constexpr auto kTurn = 1s;
// Other requests wait for each such transaction, and come in between.
constexpr std::size_t kForgottenAtOnce = 256;
constexpr auto kForgettingPause = 10ms;
// After a failure.
constexpr std::int64_t kRetry_ms = 10 * 60 * 1000;

// From 0.5 to 1, by the name alone (FNV-1a): where in its interval a repository's first turn comes.
double part_of_interval(std::string_view name) {
  std::uint32_t hash = 2166136261u;
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619u;
  return 0.5 + static_cast<double>(hash % 1024) / 2048;
}

}  // namespace

ServiceUpkeep::ServiceUpkeep(const Parts& parts) : parts_(parts), marks_(parts.store.gc_marks()) {
  for (const auto& [repository, mark] : marks_) {
    if (mark.is_done) parts_.metrics.set_gc_time(repository, parts_.time.shown(mark.time_ms).seconds);
  }
  thread_ = std::thread([this] { run(); });
}

ServiceUpkeep::~ServiceUpkeep() {
  stopping_.begin(0ms);
  thread_.join();
}

bool ServiceUpkeep::is_stopped_within(std::chrono::milliseconds time) {
  pollfd stop{stopping_.fd(), POLLIN, 0};
  return ::poll(&stop, 1, static_cast<int>(time.count())) > 0;
}

void ServiceUpkeep::run() {
  do {
    try {
      const std::shared_ptr<const EscrowdConfig> config = parts_.config.now();
      forget_old(*config);
      clean_up_next(*config);
      has_complained_ = false;
    } catch (const std::exception& failure) {
      if (!has_complained_) {
        parts_.log.write(session::LogLevel::warning,
                         std::string("what has had its time is forgotten later: ") + failure.what());
      }
      has_complained_ = true;
    }
  } while (!is_stopped_within(kTurn));
}

void ServiceUpkeep::forget_old(const EscrowdConfig& config) {
  const Retention& retention = config.retention;
  const std::int64_t now_ms = parts_.time.now_ms();
  const std::int64_t before_s = now_ms / 1000 - static_cast<std::int64_t>(retention.idempotency_keys_s);
  while (parts_.store.forget_requests(before_s, kForgottenAtOnce) && !is_stopped_within(kForgettingPause)) {
  }
  parts_.events.keep(static_cast<std::int64_t>(retention.events));
  if (!retention.events_s) return;
  const std::int64_t wall_s = parts_.time.shown(now_ms).seconds;
  const std::int64_t oldest_s = wall_s - static_cast<std::int64_t>(*retention.events_s);
  while (parts_.events.forget(oldest_s, kForgottenAtOnce) && !is_stopped_within(kForgettingPause)) {
  }
}

std::optional<std::int64_t> ServiceUpkeep::due_ms(const EscrowdConfig& config, const std::string& repository) {
  const std::int64_t interval_ms = static_cast<std::int64_t>(gc_every_s(config, repository)) * 1000;
  if (interval_ms == 0) return std::nullopt;
  const auto mark = marks_.find(repository);
  if (mark == marks_.end()) {
    const double gone = (1 - part_of_interval(repository)) * static_cast<double>(interval_ms);
    const std::int64_t since_ms = parts_.time.now_ms() - static_cast<std::int64_t>(gone);
    parts_.store.keep_gc_mark(repository, {.time_ms = since_ms, .is_done = false});
    marks_[repository] = {.time_ms = since_ms, .is_done = false};
    return since_ms + interval_ms;
  }
  const auto failed = failed_ms_.find(repository);
  const std::int64_t retry_ms = failed == failed_ms_.end() ? 0 : failed->second + std::min(kRetry_ms, interval_ms);
  return std::max(mark->second.time_ms + interval_ms, retry_ms);
}

// That which has been due for longest.
void ServiceUpkeep::clean_up_next(const EscrowdConfig& config) {
  std::optional<Entry> next;
  std::int64_t next_ms = parts_.time.now_ms();
  for (const Entry& entry : parts_.repositories.list()) {
    if (!entry.context) continue;
    const std::optional<std::int64_t> due = due_ms(config, entry.name);
    if (!due || *due > next_ms) continue;
    next = entry;
    next_ms = *due;
  }
  if (next) clean_up(config, *next);
}

void ServiceUpkeep::clean_up(const EscrowdConfig& config, const Entry& repository) {
  const auto begun = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(); };
  try {
    upkeep_apart(kGcVerb, repository.path, stopping_, config.retention.sessions_s);
    const std::int64_t now_ms = parts_.time.now_ms();
    marks_[repository.name] = {.time_ms = now_ms, .is_done = true};
    failed_ms_.erase(repository.name);
    parts_.store.keep_gc_mark(repository.name, {.time_ms = now_ms, .is_done = true});
    parts_.metrics.add_gc(repository.name, true, seconds());
    parts_.metrics.set_gc_time(repository.name, parts_.time.shown(now_ms).seconds);
    parts_.log.write(session::LogLevel::info, "the repository '" + repository.name + "' was cleaned up");
  } catch (const std::exception& failure) {
    if (stopping_.is_over()) return;  // the next service does it
    failed_ms_[repository.name] = parts_.time.now_ms();
    parts_.metrics.add_gc(repository.name, false, seconds());
    parts_.log.write(session::LogLevel::warning, "the repository '" + repository.name +
                                                     "' is cleaned up later: " + failure.what());
  }
}

}  // namespace escrow::daemon
