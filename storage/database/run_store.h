// The runs that escrowd knows of: what was asked for. What became of a run is in its session's record, what it wrote in
// files beside this. <state>/runs.db: WAL, synchronous=FULL.
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

#include "session/base/clock.h"
#include "session/base/ids.h"
#include "session/base/synchronized.h"

namespace escrow::storage {

class RunStore {
 public:
  // Creates the database when it is missing.
  explicit RunStore(const std::string& database_path);
  ~RunStore();

  struct Run {
    session::SessionId id;  // of its session, too
    std::string repository;
    std::string owner;      // the principal that asked for it
    std::string user;       // as whom the command runs, "user:NAME"
    std::uint32_t uid = 0, gid = 0;
    std::vector<std::string> command;
    std::string mountpoint;  // as the command sees it; empty: a fresh one
    std::optional<std::uint64_t> timeout_ms, memory_bytes, millicpus, max_processes;
    std::uint64_t output_bytes = 0;  // kept of each stream, at most
    bool confined = true;
    bool network = false;
    session::Timestamp created;
    bool has_ended = false;  // as far as anybody has noted it
  };
  void add(const Run& run);
  std::optional<Run> find(const session::SessionId& id) const;
  // Of everybody those of which nobody has noted that they have ended, oldest first.
  std::vector<Run> unended() const;
  struct Position {
    session::Timestamp created;
    std::string id;
  };
  // At most `limit` of those behind the position, oldest first; of one owner, or of all. `unended`: of which nobody has
  // noted that they have ended.
  std::vector<Run> list_after(const Position& position, const std::optional<std::string>& owner, bool unended,
                              std::size_t limit) const;
  // Those of which nobody has noted that they have ended, oldest first.
  std::vector<Run> unended_of(const std::string& owner) const;
  void note_ended(const session::SessionId& id);
  // But for the newest `kept`, oldest first.
  std::vector<session::SessionId> ended_of(const std::string& owner, std::size_t kept) const;
  void forget(const session::SessionId& id);

 private:
  struct Connection;
  mutable session::Synchronized<std::unique_ptr<Connection>> connection_;  // self-locking
};

}  // namespace escrow::storage
