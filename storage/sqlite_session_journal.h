// The journal of one session in <session>/session.db: WAL, one connection in the world (the session's lock proves
// it), synchronous=NORMAL for append(), FULL for the tiny write of barrier().
//
// Not thread-safe: the flusher owns it. The database is created by the first append(). Throws Error{no_space},
// {damaged_repository} naming the file, {newer_state}.
#pragma once

#include <memory>
#include <string>

#include "session/session_journal.h"

namespace escrow::storage {

class SqliteSessionJournal final : public session::SessionJournal {
 public:
  // `session_directory` exists, and its parent.
  explicit SqliteSessionJournal(std::string session_directory);
  ~SqliteSessionJournal() override;

  session::JournalState load() override;
  void append(const session::JournalBatch& batch) override;
  void barrier() override;

  // The session is being removed: closes the database without a checkpoint; later calls do nothing.
  void abandon() noexcept;

 private:
  struct Connection;
  Connection& connection();

  const std::string directory_;              // constant
  std::unique_ptr<Connection> connection_;   // guarded by the owner, as everything below
  bool directories_synced_ = false;
  bool pending_ = false;                     // something may have been appended since the last barrier
  bool abandoned_ = false;
};

}  // namespace escrow::storage
