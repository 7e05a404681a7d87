// Keeps a session's denials: counted by kind with its record, and traced one line each.
//
// Thread-safe. denied() only counts in memory; a thread writes a few times a second, so a storm of denials costs its
// caller a lookup and nobody a disk write. Bounded: alike denials of one moment are one line with a count, lines beyond
// a burst come at 100 a second, what is left out is counted. A kill -9 loses what was denied in the last moment.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <thread>
#include <tuple>
#include <vector>

#include "session/base/clock.h"
#include "session/base/denial.h"
#include "session/base/log.h"
#include "session/base/synchronized.h"
#include "session/interfaces/session_catalog.h"

namespace escrow::session {

// One line of a trace. With an empty operation it stands for `count` denials that got no line of their own.
struct TracedDenial {
  Timestamp time;  // of the first
  Denial denial;
  std::uint64_t count = 1;
};

class DenialLog final : public DenialSink {
 public:
  // `trace` is called from one thread at a time and may take its time; it may be empty. The others must outlive this.
  DenialLog(SessionId id, SessionCatalog& catalog, Clock& clock, Log& log,
            std::function<void(const std::vector<TracedDenial>&)> trace);
  ~DenialLog() override;  // flushes

  void denied(const Denial& denial) noexcept override;
  // What was denied so far is in the catalog and the trace on return; a catalog that refuses is reported to the log,
  // and tried again later.
  void flush();

 private:
  using Kind = std::tuple<std::string, std::string, std::string, std::string>;  // operation, path, rule, action
  struct Seen {
    std::uint64_t count = 0;
    Timestamp first, last;
  };
  using Kinds = std::map<Kind, Seen>;
  struct Pending {
    Kinds kinds;
    Seen others;  // beyond kMaxDenials kinds
    bool stop = false;
  };
  // Of the thread that writes.
  struct Writer {
    Kinds unrecorded;
    Seen others;
    double lines_left = kBurst;
    std::chrono::steady_clock::time_point refilled = std::chrono::steady_clock::now();
    std::uint64_t untraced = 0;
    Timestamp untraced_since;
    bool has_complained = false;
  };
  static constexpr double kBurst = 10'000, kLinesPerSecond = 100;

  static void add(Seen& to, const Seen& more);
  static void add(Kinds& kinds, Seen& others, const Kind& kind, const Seen& seen);
  void run();
  void write(Writer& writer, const Kinds& kinds, const Seen& others);
  void trace(Writer& writer, const Kinds& kinds, const Seen& others);
  void record(Writer& writer);

  const SessionId id_;
  SessionCatalog& catalog_;  // self-locking, as the next two
  Clock& clock_;
  Log& log_;
  const std::function<void(const std::vector<TracedDenial>&)> trace_;
  Synchronized<Writer> writer_;  // taken before pending_; held across a write to the catalog and the trace
  Synchronized<Pending> pending_;
  std::condition_variable changed_;  // with pending_
  std::thread thread_;               // started last
};

}  // namespace escrow::session
