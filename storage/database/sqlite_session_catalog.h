// The session catalog in <state>/catalog.db: WAL, synchronous=FULL, with a history of every transition.
//
// Thread-safe (one connection behind a lock, and one for lists and counts, which wait for no writer) and safe between
// processes. Opened in the process that uses it: a
// connection must not cross a fork(2). Throws Error{no_space}, {damaged_repository}, {newer_state}, {busy} (another
// process kept the database for 10 s).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "session/base/synchronized.h"
#include "session/interfaces/session_catalog.h"
#include "storage/database/audit_entry.h"
#include "storage/database/group_commit.h"
#include "storage/database/session_query.h"
#include "storage/database/sqlite.h"

namespace escrow::storage {

class SqliteSessionCatalog final : public session::SessionCatalog {
 public:
  // Creates the database when it is missing, migrates an older one.
  explicit SqliteSessionCatalog(const std::string& database_path);
  ~SqliteSessionCatalog() override;

  void insert(const session::SessionRecord& record) override;
  std::optional<session::SessionRecord> find(const session::SessionId& id) const override;
  std::vector<session::SessionId> find_by_prefix(const std::string& prefix) const override;
  std::vector<session::SessionRecord> unended() const override;
  std::vector<session::SessionRecord> list() const override;
  std::vector<session::SessionId> forks_of(const session::SessionId& id) const override;
  std::vector<session::SessionId> resumed_as(const session::SessionId& id) const override;
  void note(const session::SessionRecord& record, const std::string& who, const std::string& why) override;
  void transition(session::State expected, const session::SessionRecord& record, const std::string& who,
                  const std::string& why) override;
  void remark(const session::SessionId& id, session::Timestamp when, const std::string& who,
              const std::string& what) override;
  void add_denials(const session::SessionId& id, const std::vector<session::DenialCount>& denials) override;
  std::vector<session::DenialCount> denials(const session::SessionId& id) const override;
  std::string keep_reads(const session::SessionId& id, const std::string& reads) override;
  std::optional<std::string> reads(const session::SessionId& id) const override;
  std::uint64_t prune(session::Timestamp before) override;
  // Forgets one session, its history and denials; only a final one.
  void forget(const session::SessionId& id);

  std::vector<session::SessionRecord> page(const SessionQuery& query) const;
  SessionCounts counts() const;
  // Oldest first.
  std::vector<Transition> history(const session::SessionId& id) const;
  std::vector<NumberedTransition> transitions_after(std::int64_t number, std::size_t limit) const;
  std::vector<NumberedDenial> denials_after(std::int64_t number, std::size_t limit) const;
  CatalogNumbers numbers() const;
  // How many calls a policy denied in the session.
  std::uint64_t denied_calls(const session::SessionId& id) const;

 private:
  struct Connection;
  struct Reader;
  const std::string path_;
  // Behind a pointer, because it holds a database with its statements.
  mutable session::Synchronized<std::unique_ptr<Connection>> connection_;  // self-locking
  GroupCommit<Connection> writes_;                                         // self-locking
  mutable session::Synchronized<std::unique_ptr<Reader>> reader_;          // self-locking; null: not needed so far
};

}  // namespace escrow::storage
