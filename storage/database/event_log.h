// What happened, for clients of escrowd that follow it: numbered events, the newest of them, and how far each of their
// sources has been read. <state>/events.db: WAL, synchronous=FULL.
//
// Numbers begin with 1 and have no gaps; none is ever used again, also not after a restart or a kill. Thread-safe (one
// connection behind a lock); one process at a time. What append() was given is on disk when it returns. Throws
// Error{no_space}, {damaged_repository}, {newer_state}.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/base/synchronized.h"

namespace escrow::storage {

class EventLog {
 public:
  static constexpr std::int64_t kKept = 10'000;  // unless keep() says otherwise

  // Creates the database when it is missing.
  explicit EventLog(const std::string& database_path);
  ~EventLog();

  struct Event {
    std::int64_t number = 0;  // append() gives it
    std::string type;         // "branch.updated"
    std::string repository;
    std::string session;      // empty: of no session
    std::string issuer;       // of the session: who may see the event, beside those who may see all
    std::string document;     // JSON
  };
  // The events, in this order, and the positions of their sources (an empty one is forgotten): all or nothing.
  void append(const std::vector<Event>& events, const std::map<std::string, std::string>& positions);

  // From the next append() on so many are kept.
  void keep(std::int64_t most) { kept_.store(most); }
  // Drops at most `most` of those that came before that time of the wall clock, the oldest first. True: there may be
  // more.
  bool forget(std::int64_t before_s, std::size_t most);

  // Of one source; nullopt: it was never read.
  std::optional<std::string> position(const std::string& source) const;
  // Those whose source begins with `prefix`, without the prefix, which ends with a letter or another sign of ASCII.
  std::map<std::string, std::string> positions(const std::string& prefix) const;

  // At most `limit` of the events that are kept and have a higher number.
  std::vector<Event> after(std::int64_t number, std::size_t limit) const;
  // The number of the newest event; 0: there was none. Reads no disk.
  std::int64_t last() const { return last_.load(); }

 private:
  struct Connection;
  mutable session::Synchronized<std::unique_ptr<Connection>> connection_;  // self-locking
  std::atomic<std::int64_t> last_ = 0;
  std::atomic<std::int64_t> kept_ = kKept;
};

}  // namespace escrow::storage
