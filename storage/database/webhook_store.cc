#include "storage/database/webhook_store.h"

#include <array>

#include "storage/database/schema.h"
#include "storage/database/sqlite.h"

namespace escrow::storage {

namespace {

constexpr std::array<const char*, 1> kWebhookMigrations = {R"(
  CREATE TABLE webhook (
    name TEXT PRIMARY KEY NOT NULL, told INTEGER NOT NULL, failing_since_s INTEGER
  ) WITHOUT ROWID;
  CREATE TABLE dead (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook TEXT NOT NULL, event INTEGER NOT NULL, type TEXT NOT NULL, document BLOB NOT NULL,
    error BLOB NOT NULL, time_s INTEGER NOT NULL
  );
  CREATE INDEX dead_by_webhook ON dead (webhook, number);
)"};

constexpr std::int32_t kWebhookStoreId = 0x65736377;  // "escw"

Database open_webhook_database(const std::string& path) {
  static const Schema schema{"database of webhooks", kWebhookStoreId, kWebhookMigrations};
  return open_durable(path, schema);
}

}  // namespace

struct WebhookStore::Connection {
  explicit Connection(const std::string& path) : database(open_webhook_database(path)) {}

  Database database;
  Statement read_position{database, "SELECT told, failing_since_s FROM webhook WHERE name = ?"};
  Statement set{database, "REPLACE INTO webhook (name, told, failing_since_s) VALUES (?, ?, ?)"};
  Statement add_dead{database,
                     "INSERT INTO dead (webhook, event, type, document, error, time_s) VALUES (?, ?, ?, ?, ?, ?)"};
  Statement drop_oldest{database, "DELETE FROM dead WHERE webhook = ?1 AND number <= (SELECT number FROM dead WHERE "
                                  "webhook = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)"};
  Statement read_dead{database, "SELECT number, event, type, document, error, time_s FROM dead "
                                "WHERE webhook = ? AND number > ? ORDER BY number LIMIT ?"};
  Statement count_dead{database, "SELECT count(*) FROM dead WHERE webhook = ?"};
  Statement forget_dead{database, "DELETE FROM dead WHERE webhook = ? AND number = ?"};
};

WebhookStore::WebhookStore(const std::string& database_path)
    : connection_(std::make_unique<Connection>(database_path)) {}

WebhookStore::~WebhookStore() = default;

std::optional<WebhookStore::Position> WebhookStore::position(const std::string& webhook) const {
  auto guard = connection_.lock();
  auto run = (*guard)->read_position.run(webhook);
  if (!run.next()) return std::nullopt;
  return Position{.told = run.integer(0),
                  .failing_since_s = run.is_null(1) ? std::nullopt : std::optional(run.integer(1))};
}

void WebhookStore::set(const std::string& webhook, const Position& position) {
  (*connection_.lock())->set.execute(webhook, position.told, position.failing_since_s);
}

void WebhookStore::give_up(const std::string& webhook, const Dead& dead) {
  auto guard = connection_.lock();
  Connection& connection = **guard;
  Transaction transaction(connection.database);
  connection.add_dead.execute(webhook, dead.event, dead.type, Bytes{dead.document}, Bytes{dead.error}, dead.time_s);
  connection.drop_oldest.execute(webhook, kDeadKept);
  connection.set.execute(webhook, dead.event, std::optional<std::int64_t>());
  transaction.commit();
}

std::vector<WebhookStore::Dead> WebhookStore::dead_after(const std::string& webhook, std::int64_t number,
                                                         std::size_t limit) const {
  auto guard = connection_.lock();
  auto run = (*guard)->read_dead.run(webhook, number, static_cast<std::int64_t>(limit));
  std::vector<Dead> found;
  while (run.next()) {
    found.push_back({.number = run.integer(0),
                     .event = run.integer(1),
                     .type = run.bytes(2),
                     .document = run.bytes(3),
                     .error = run.bytes(4),
                     .time_s = run.integer(5)});
  }
  return found;
}

std::int64_t WebhookStore::count_dead(const std::string& webhook) const {
  auto guard = connection_.lock();
  auto run = (*guard)->count_dead.run(webhook);
  return run.next() ? run.integer(0) : 0;
}

bool WebhookStore::forget_dead(const std::string& webhook, std::int64_t number) {
  auto guard = connection_.lock();
  (*guard)->forget_dead.execute(webhook, number);
  return (*guard)->database.changes() > 0;
}

}  // namespace escrow::storage
