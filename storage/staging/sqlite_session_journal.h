// The journal of one session in <session>/session.db: WAL, one connection in the world (the session's lock proves
// it), synchronous=NORMAL for append(), FULL for the tiny write of barrier().
//
// After a sync that failed the log may have holes where the kernel dropped what it could not write. So it is read
// again, and if nothing is missing it is copied into the database and begun anew, before a barrier succeeds.
//
// Not thread-safe: the flusher owns it. The database is created by the first append(). Throws Error{no_space},
// {damaged_repository} naming the file, {newer_state}, {input_output}.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "session/interfaces/session_journal.h"

namespace escrow::storage {

class SqliteSessionJournal final : public session::SessionJournal {
 public:
  // `session_directory` exists, and its parent.
  explicit SqliteSessionJournal(std::string session_directory);
  ~SqliteSessionJournal() override;

  session::JournalState load(session::LayerId top = {}) override;
  std::vector<session::Savepoint> savepoints() override;
  std::vector<session::NodeRow> all_nodes() override;
  void append(const session::JournalBatch& batch) override;
  void barrier() override;
  void let_go() override;

  // A name in the session's directory changed: the next barrier brings it to disk, too.
  void directory_changed() noexcept { directories_synced_ = false; }
  // The session is being removed: closes the database without a checkpoint; later calls do nothing.
  void abandon() noexcept;

 private:
  struct Connection;
  Connection& connection();
  void write_anew();
  void keep_log_short();

  const std::string directory_;              // constant
  std::unique_ptr<Connection> connection_;   // guarded by the owner, as everything below
  bool directories_synced_ = false;
  bool pending_ = false;                     // something may have been appended since the last barrier
  bool abandoned_ = false;
  bool doubtful_ = false;                    // a sync failed
  std::uint64_t appended_ = 0;               // batches, ever
};

}  // namespace escrow::storage
