#include "storage/database/run_store.h"

#include <array>
#include <utility>

#include "storage/database/schema.h"
#include "storage/database/sqlite.h"
#include "storage/disk/joined_texts.h"

namespace escrow::storage {

using session::Errc;
using session::Error;
using session::SessionId;

namespace {

// A command is its words, a NUL after each.
constexpr std::array<const char*, 5> kRunMigrations = {R"(
  CREATE TABLE run (
    id TEXT PRIMARY KEY NOT NULL,
    repository TEXT NOT NULL, owner TEXT NOT NULL,
    user TEXT NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL,
    command BLOB NOT NULL, mountpoint BLOB NOT NULL,
    timeout_ms INTEGER, memory_bytes INTEGER, output_bytes INTEGER NOT NULL,
    confined INTEGER NOT NULL, network INTEGER NOT NULL,
    created_s INTEGER NOT NULL, created_ns INTEGER NOT NULL
  ) WITHOUT ROWID;
  CREATE INDEX run_by_owner ON run (owner, created_s, created_ns);
)",
                                                       R"(
  ALTER TABLE run ADD COLUMN max_processes INTEGER;
)",
                                                       R"(
  ALTER TABLE run ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
  DROP INDEX run_by_owner;
  CREATE INDEX run_by_owner ON run (owner, created_s, created_ns, id);
  CREATE INDEX run_by_end ON run (owner, ended, created_s, created_ns, id);
  CREATE INDEX run_by_age ON run (created_s, created_ns, id);
)",
                                                       R"(
  CREATE INDEX run_unended ON run (created_s, created_ns, id) WHERE ended = 0;
)",
                                                       R"(
  ALTER TABLE run ADD COLUMN millicpus INTEGER;
)"};

constexpr std::int32_t kRunStoreId = 0x65736372;  // "escr"
constexpr std::string_view kRun =
    "SELECT id, repository, owner, user, uid, gid, command, mountpoint, timeout_ms, memory_bytes, output_bytes, "
    "confined, network, created_s, created_ns, max_processes, ended, millicpus FROM run ";
constexpr std::string_view kOldestFirst = "ORDER BY created_s, created_ns, id";

Database open_run_database(const std::string& path) {
  static const Schema schema{"database of runs", kRunStoreId, kRunMigrations};
  return open_durable(path, schema);
}

std::optional<std::uint64_t> number_or_none(const Statement::Run& row, int column) {
  if (row.is_null(column)) return std::nullopt;
  return static_cast<std::uint64_t>(row.integer(column));
}

RunStore::Run run_of(const Database& database, const Statement::Run& row) {
  const std::optional<SessionId> id = SessionId::parse(row.bytes(0));
  if (!id) {
    throw Error(Errc::damaged_repository,
                "the database " + database.path() + " is damaged: it has a run '" + row.bytes(0) + "'");
  }
  return {.id = *id,
          .repository = row.bytes(1),
          .owner = row.bytes(2),
          .user = row.bytes(3),
          .uid = static_cast<std::uint32_t>(row.integer(4)),
          .gid = static_cast<std::uint32_t>(row.integer(5)),
          .command = split_texts(row.bytes(6)),
          .mountpoint = row.bytes(7),
          .timeout_ms = number_or_none(row, 8),
          .memory_bytes = number_or_none(row, 9),
          .millicpus = number_or_none(row, 17),
          .max_processes = number_or_none(row, 15),
          .output_bytes = static_cast<std::uint64_t>(row.integer(10)),
          .confined = row.integer(11) != 0,
          .network = row.integer(12) != 0,
          .created = {row.integer(13), static_cast<std::uint32_t>(row.integer(14))},
          .has_ended = row.integer(16) != 0};
}

}  // namespace

struct RunStore::Connection {
  static std::string sql_after(const std::string& index, const std::string& condition) {
    return std::string(kRun) + index + " WHERE (created_s, created_ns, id) > (?1, ?2, ?3) " + condition +
           std::string(kOldestFirst) + " LIMIT ?4";
  }
  explicit Connection(const std::string& path) : database(open_run_database(path)) {}

  std::vector<Run> read(Statement::Run row) const {
    std::vector<Run> found;
    while (row.next()) found.push_back(run_of(database, row));
    return found;
  }

  Database database;
  Statement add{database,
                "INSERT INTO run (id, repository, owner, user, uid, gid, command, mountpoint, timeout_ms, "
                "memory_bytes, output_bytes, confined, network, created_s, created_ns, max_processes, millicpus) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"};
  Statement find{database, std::string(kRun) + "WHERE id = ?"};
  Statement unended{database, std::string(kRun) + "INDEXED BY run_unended WHERE ended = 0 " +
                                  std::string(kOldestFirst)};
  Statement list_after{database, sql_after("INDEXED BY run_by_age", "")};
  Statement list_after_of{database, sql_after("INDEXED BY run_by_owner", "AND owner = ?5 ")};
  Statement unended_after{database, sql_after("INDEXED BY run_unended", "AND ended = 0 ")};
  Statement unended_after_of{database, sql_after("INDEXED BY run_by_end", "AND ended = 0 AND owner = ?5 ")};
  Statement unended_of{database, std::string(kRun) + "WHERE owner = ? AND ended = 0 " + std::string(kOldestFirst)};
  Statement note_ended{database, "UPDATE run SET ended = 1 WHERE id = ? AND ended = 0"};
  Statement ended_of{database, "SELECT id FROM run WHERE owner = ? AND ended = 1 "
                               "ORDER BY created_s DESC, created_ns DESC, id DESC LIMIT -1 OFFSET ?"};
  Statement forget{database, "DELETE FROM run WHERE id = ?"};
};

RunStore::RunStore(const std::string& database_path) : connection_(std::make_unique<Connection>(database_path)) {}

RunStore::~RunStore() = default;

void RunStore::add(const Run& run) {
  (*connection_.lock())
      ->add.execute(run.id.text(), run.repository, run.owner, run.user, run.uid, run.gid,
                    Bytes{join_texts(run.command)},
                    Bytes{run.mountpoint}, run.timeout_ms, run.memory_bytes, run.output_bytes, run.confined,
                    run.network, run.created.seconds, run.created.nanoseconds, run.max_processes, run.millicpus);
}

std::optional<RunStore::Run> RunStore::find(const SessionId& id) const {
  auto guard = connection_.lock();
  std::vector<Run> found = (*guard)->read((*guard)->find.run(id.text()));
  return found.empty() ? std::nullopt : std::optional(std::move(found.front()));
}

std::vector<RunStore::Run> RunStore::unended() const {
  auto guard = connection_.lock();
  return (*guard)->read((*guard)->unended.run());
}

std::vector<RunStore::Run> RunStore::list_after(const Position& position, const std::optional<std::string>& owner,
                                                bool unended, std::size_t limit) const {
  auto guard = connection_.lock();
  Connection& connection = **guard;
  const auto& [seconds, nanoseconds] = position.created;
  const auto most = static_cast<std::int64_t>(limit);
  if (!owner) {
    Statement& of_all = unended ? connection.unended_after : connection.list_after;
    return connection.read(of_all.run(seconds, nanoseconds, position.id, most));
  }
  Statement& of_one = unended ? connection.unended_after_of : connection.list_after_of;
  return connection.read(of_one.run(seconds, nanoseconds, position.id, most, *owner));
}

std::vector<RunStore::Run> RunStore::unended_of(const std::string& owner) const {
  auto guard = connection_.lock();
  return (*guard)->read((*guard)->unended_of.run(owner));
}

void RunStore::note_ended(const SessionId& id) { (*connection_.lock())->note_ended.execute(id.text()); }

std::vector<SessionId> RunStore::ended_of(const std::string& owner, std::size_t kept) const {
  auto guard = connection_.lock();
  auto run = (*guard)->ended_of.run(owner, static_cast<std::int64_t>(kept));
  std::vector<SessionId> ids;
  while (run.next()) {
    if (const auto id = SessionId::parse(run.bytes(0))) ids.push_back(*id);
  }
  return {ids.rbegin(), ids.rend()};
}

void RunStore::forget(const SessionId& id) { (*connection_.lock())->forget.execute(id.text()); }

}  // namespace escrow::storage
