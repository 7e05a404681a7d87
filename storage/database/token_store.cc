#include "storage/database/token_store.h"

#include <array>
#include <utility>

#include "storage/database/schema.h"
#include "storage/database/sqlite.h"

namespace escrow::storage {

using session::Errc;
using session::Error;

namespace {

// A change repeats what is told of its token, which may be forgotten first.
constexpr std::array<const char*, 1> kTokenMigrations = {R"(
  CREATE TABLE token (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE, hash TEXT NOT NULL UNIQUE,
    principal TEXT NOT NULL, note TEXT NOT NULL, created_by TEXT NOT NULL,
    created_s INTEGER NOT NULL, expires_s INTEGER NOT NULL,
    ended_s INTEGER, ended_by TEXT NOT NULL DEFAULT ''
  );
  CREATE INDEX token_by_principal ON token (principal, number);
  CREATE INDEX token_valid ON token (expires_s) WHERE ended_s IS NULL;
  CREATE INDEX token_valid_by_number ON token (number) WHERE ended_s IS NULL;
  CREATE INDEX token_valid_by_principal ON token (principal, number) WHERE ended_s IS NULL;
  CREATE INDEX token_ended ON token (ended_s) WHERE ended_s IS NOT NULL;
  CREATE TABLE change (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL, who TEXT NOT NULL, time_s INTEGER NOT NULL,
    id TEXT NOT NULL, principal TEXT NOT NULL, note TEXT NOT NULL, expires_s INTEGER NOT NULL
  );
)"};

constexpr std::int32_t kTokenStoreId = 0x65736374;  // "esct"
constexpr std::string_view kToken =
    "SELECT number, id, hash, principal, note, created_by, created_s, expires_s, ended_s, ended_by FROM token ";
constexpr std::string_view kChange =
    "INSERT INTO change (kind, who, time_s, id, principal, note, expires_s) ";

Database open_token_database(const std::string& path) {
  static const Schema schema{"database of tokens", kTokenStoreId, kTokenMigrations};
  return open_durable(path, schema);
}

TokenStore::Token token_of(const Statement::Run& row) {
  return {.number = row.integer(0),
          .id = row.bytes(1),
          .hash = row.bytes(2),
          .principal = row.bytes(3),
          .note = row.bytes(4),
          .created_by = row.bytes(5),
          .created_s = row.integer(6),
          .expires_s = row.integer(7),
          .ended_s = row.is_null(8) ? std::nullopt : std::optional(row.integer(8)),
          .ended_by = row.bytes(9)};
}

std::vector<TokenStore::Token> read(Statement::Run row) {
  std::vector<TokenStore::Token> found;
  while (row.next()) found.push_back(token_of(row));
  return found;
}

}  // namespace

struct TokenStore::Connection {
  static std::string sql_after(const std::string& index, const std::string& condition) {
    return std::string(kToken) + index + " WHERE number > ?1 " + condition + " ORDER BY number LIMIT ?2";
  }
  explicit Connection(const std::string& path) : database(open_token_database(path)) {}

  Database database;
  Statement known{database, "SELECT 1 FROM token WHERE hash = ?"};
  Statement add{database,
                "INSERT INTO token (id, hash, principal, note, created_by, created_s, expires_s) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)"};
  Statement find{database, std::string(kToken) + "WHERE id = ?"};
  Statement list_after{database, sql_after("", "")};
  Statement list_after_of{database, sql_after("INDEXED BY token_by_principal", "AND principal = ?3")};
  Statement valid_after{database, sql_after("INDEXED BY token_valid_by_number", "AND ended_s IS NULL")};
  Statement valid_after_of{database, sql_after("INDEXED BY token_valid_by_principal",
                                               "AND ended_s IS NULL AND principal = ?3")};
  Statement valid{database, std::string(kToken) + "INDEXED BY token_valid WHERE ended_s IS NULL"};
  Statement end{database, "UPDATE token SET ended_s = ?2, ended_by = ?3 WHERE id = ?1 AND ended_s IS NULL"};
  Statement overdue{database, "SELECT id FROM token INDEXED BY token_valid WHERE ended_s IS NULL AND expires_s <= ? "
                              "ORDER BY expires_s LIMIT ?"};
  Statement forget{database, "DELETE FROM token WHERE number IN (SELECT number FROM token INDEXED BY token_ended "
                             "WHERE ended_s IS NOT NULL AND ended_s < ? ORDER BY ended_s LIMIT ?)"};
  Statement note_change{database, std::string(kChange) +
                                      "SELECT ?2, ?3, ?4, id, principal, note, expires_s FROM token WHERE id = ?1"};
  Statement changes_after{database, "SELECT number, kind, who, time_s, id, principal, note, expires_s FROM change "
                                    "WHERE number > ? ORDER BY number LIMIT ?"};
  Statement forget_changes{database, "DELETE FROM change WHERE number <= ?"};
};

TokenStore::TokenStore(const std::string& database_path) : connection_(std::make_unique<Connection>(database_path)) {}

TokenStore::~TokenStore() = default;

void TokenStore::add(const Token& token) {
  auto guard = connection_.lock();
  Connection& connection = **guard;
  Transaction transaction(connection.database);
  if (connection.known.run(token.hash).next()) {
    throw Error(Errc::exists, "the service knows the token with this hash already; make a new one");
  }
  connection.add.execute(token.id, token.hash, token.principal, token.note, token.created_by, token.created_s,
                         token.expires_s);
  connection.note_change.execute(token.id, "created", token.created_by, token.created_s);
  transaction.commit();
}

std::optional<TokenStore::Token> TokenStore::find(const std::string& id) const {
  auto guard = connection_.lock();
  auto row = (*guard)->find.run(id);
  return row.next() ? std::optional(token_of(row)) : std::nullopt;
}

std::vector<TokenStore::Token> TokenStore::list_after(std::int64_t number, const std::optional<std::string>& principal,
                                                      bool with_ended, std::size_t limit) const {
  auto guard = connection_.lock();
  Connection& connection = **guard;
  const auto most = static_cast<std::int64_t>(limit);
  if (!principal) return read((with_ended ? connection.list_after : connection.valid_after).run(number, most));
  return read((with_ended ? connection.list_after_of : connection.valid_after_of).run(number, most, *principal));
}

std::vector<TokenStore::Token> TokenStore::valid() const {
  auto guard = connection_.lock();
  return read((*guard)->valid.run());
}

bool TokenStore::revoke(const std::string& id, const std::string& who, std::int64_t now_s) {
  auto guard = connection_.lock();
  Connection& connection = **guard;
  Transaction transaction(connection.database);
  connection.end.execute(id, now_s, who);
  if (connection.database.changes() == 0) return false;
  connection.note_change.execute(id, "revoked", who, now_s);
  transaction.commit();
  return true;
}

bool TokenStore::expire(std::int64_t now_s, std::size_t most) {
  auto guard = connection_.lock();
  Connection& connection = **guard;
  Transaction transaction(connection.database);
  std::vector<std::string> ids;
  {
    auto row = connection.overdue.run(now_s, static_cast<std::int64_t>(most));
    while (row.next()) ids.push_back(row.bytes(0));
  }
  if (ids.empty()) return false;
  for (const std::string& id : ids) {
    connection.end.execute(id, now_s, "");
    connection.note_change.execute(id, "expired", "escrowd", now_s);
  }
  transaction.commit();
  return ids.size() == most;
}

bool TokenStore::forget(std::int64_t before_s, std::size_t most) {
  auto guard = connection_.lock();
  Connection& connection = **guard;
  connection.forget.execute(before_s, static_cast<std::int64_t>(most));
  return connection.database.changes() == static_cast<std::int64_t>(most);
}

std::vector<TokenStore::Change> TokenStore::changes_after(std::int64_t number, std::size_t limit) const {
  auto guard = connection_.lock();
  auto row = (*guard)->changes_after.run(number, static_cast<std::int64_t>(limit));
  std::vector<Change> found;
  while (row.next()) {
    found.push_back({.number = row.integer(0),
                     .kind = row.bytes(1),
                     .who = row.bytes(2),
                     .time_s = row.integer(3),
                     .id = row.bytes(4),
                     .principal = row.bytes(5),
                     .note = row.bytes(6),
                     .expires_s = row.integer(7)});
  }
  return found;
}

void TokenStore::forget_changes(std::int64_t number) { (*connection_.lock())->forget_changes.execute(number); }

}  // namespace escrow::storage
