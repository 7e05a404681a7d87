// How far each webhook of escrowd has come in the event log, and the events that were given up (dead letters).
// <state>/webhooks.db: WAL, synchronous=FULL.
//
// Thread-safe (one connection behind a lock); one process at a time. What a method changed is on disk when it returns.
// Throws Error{no_space}, {damaged_repository}, {newer_state}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/base/synchronized.h"

namespace escrow::storage {

class WebhookStore {
 public:
  static constexpr std::int64_t kDeadKept = 1000;  // of one webhook, the newest ones

  // Creates the database when it is missing.
  explicit WebhookStore(const std::string& database_path);
  ~WebhookStore();

  struct Position {
    std::int64_t told = 0;                        // the number of the last event that needs to be told no more
    std::optional<std::int64_t> failing_since_s;  // of the next one
  };
  // nullopt: it has not begun.
  std::optional<Position> position(const std::string& webhook) const;
  void set(const std::string& webhook, const Position& position);

  struct Dead {
    std::int64_t number = 0;  // add_dead() gives it, and none twice
    std::int64_t event = 0;
    std::string type, document, error;
    std::int64_t time_s = 0;  // when it was given up
  };
  // Goes on behind the event; both or nothing.
  void give_up(const std::string& webhook, const Dead& dead);
  // At most `limit` with a higher number, by number.
  std::vector<Dead> dead_after(const std::string& webhook, std::int64_t number, std::size_t limit) const;
  std::int64_t count_dead(const std::string& webhook) const;
  // False: there is none.
  bool forget_dead(const std::string& webhook, std::int64_t number);

 private:
  struct Connection;
  mutable session::Synchronized<std::unique_ptr<Connection>> connection_;  // self-locking
};

}  // namespace escrow::storage
