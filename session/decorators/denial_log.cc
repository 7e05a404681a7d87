#include "session/decorators/denial_log.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace escrow::session {
namespace {

using namespace std::chrono_literals;
constexpr auto kPeriod = 250ms;

}  // namespace

DenialLog::DenialLog(SessionId id, SessionCatalog& catalog, Clock& clock, Log& log,
                     std::function<void(const std::vector<TracedDenial>&)> trace)
    : id_(std::move(id)), catalog_(catalog), clock_(clock), log_(log), trace_(std::move(trace)),
      thread_([this] { run(); }) {}

DenialLog::~DenialLog() {
  {
    auto pending = pending_.lock();
    pending->stop = true;
    changed_.notify_all();
  }
  thread_.join();
  flush();
}

void DenialLog::add(Seen& to, const Seen& more) {
  if (more.count == 0) return;
  to.first = to.count == 0 ? more.first : std::min(to.first, more.first);
  to.last = to.count == 0 ? more.last : std::max(to.last, more.last);
  to.count += more.count;
}

void DenialLog::add(Kinds& kinds, Seen& others, const Kind& kind, const Seen& seen) {
  const auto known = kinds.find(kind);
  if (known != kinds.end()) {
    add(known->second, seen);
  } else if (kinds.size() < kMaxDenials) {
    kinds.emplace(kind, seen);
  } else {
    add(others, seen);
  }
}

void DenialLog::denied(const Denial& denial) noexcept {
  try {
    const Timestamp now = clock_.now();
    auto pending = pending_.lock();
    const bool was_empty = pending->kinds.empty();
    add(pending->kinds, pending->others, {denial.operation, denial.path, denial.rule, denial.action}, {1, now, now});
    if (was_empty) changed_.notify_all();
  } catch (...) {
    // Without memory to note it, the call is refused all the same.
  }
}

void DenialLog::run() {
  for (;;) {
    {
      auto pending = pending_.lock();
      changed_.wait(pending.lock(), [&] { return pending->stop || !pending->kinds.empty(); });
      // A moment, so that denials that come together are written together.
      if (changed_.wait_for(pending.lock(), kPeriod, [&] { return pending->stop; })) return;
    }
    flush();
  }
}

void DenialLog::flush() {
  auto writer = writer_.lock();
  Kinds kinds;
  Seen others;
  {
    auto pending = pending_.lock();
    kinds.swap(pending->kinds);
    std::swap(others, pending->others);
  }
  write(*writer, kinds, others);
}

void DenialLog::write(Writer& writer, const Kinds& kinds, const Seen& others) {
  try {
    trace(writer, kinds, others);
    for (const auto& [kind, seen] : kinds) {
      // The catalog does not tell actions apart: the rule does.
      const auto& [operation, path, rule, action] = kind;
      add(writer.unrecorded, writer.others, {operation, path, rule, ""}, seen);
    }
    add(writer.others, others);
    record(writer);
  } catch (const std::exception& failure) {
    if (!std::exchange(writer.has_complained, true))
      log_.write(LogLevel::warning, std::string("denials could not be recorded: ") + failure.what());
  }
}

void DenialLog::trace(Writer& writer, const Kinds& kinds, const Seen& others) {
  if (!trace_) return;
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> passed = now - writer.refilled;
  writer.refilled = now;
  writer.lines_left = std::min(kBurst, writer.lines_left + passed.count() * kLinesPerSecond);
  const auto leave_out = [&](const Seen& seen) {
    if (seen.count > 0 && writer.untraced == 0) writer.untraced_since = seen.first;
    writer.untraced += seen.count;
  };
  std::vector<TracedDenial> lines;
  for (const auto& [kind, seen] : kinds) {
    if (writer.lines_left < 1) {
      leave_out(seen);
      continue;
    }
    writer.lines_left -= 1;
    const auto& [operation, path, rule, action] = kind;
    lines.push_back({seen.first, {operation, action, path, rule}, seen.count});
  }
  leave_out(others);
  std::ranges::stable_sort(lines, {}, &TracedDenial::time);
  if (writer.untraced > 0) lines.push_back({writer.untraced_since, {}, std::exchange(writer.untraced, 0)});
  if (!lines.empty()) trace_(lines);
}

void DenialLog::record(Writer& writer) {
  std::vector<DenialCount> counts;
  for (const auto& [kind, seen] : writer.unrecorded)
    counts.push_back({std::get<0>(kind), std::get<1>(kind), std::get<2>(kind), seen.count, seen.first, seen.last});
  if (writer.others.count > 0)
    counts.push_back({"", "", "", writer.others.count, writer.others.first, writer.others.last});
  if (counts.empty()) return;
  catalog_.add_denials(id_, counts);
  writer.unrecorded.clear();
  writer.others = {};
  writer.has_complained = false;
}

}  // namespace escrow::session
