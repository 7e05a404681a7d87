#include "storage/database/event_log.h"

#include <array>

#include "storage/database/schema.h"
#include "storage/database/sqlite.h"

namespace escrow::storage {

namespace {

constexpr std::array<const char*, 2> kEventMigrations = {R"(
  CREATE TABLE event (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    type TEXT NOT NULL, repository TEXT NOT NULL, session TEXT NOT NULL, issuer TEXT NOT NULL, document BLOB NOT NULL
  );
  CREATE TABLE position (source BLOB PRIMARY KEY NOT NULL, position TEXT NOT NULL) WITHOUT ROWID;
)",
                                                         R"(
  ALTER TABLE event ADD COLUMN time_s INTEGER NOT NULL DEFAULT 0;
  UPDATE event SET time_s = CAST(strftime('%s', 'now') AS INTEGER);
)"};

constexpr std::int32_t kEventLogId = 0x65736376;  // "escv"

Database open_event_database(const std::string& path) {
  static const Schema schema{"event log", kEventLogId, kEventMigrations};
  return open_durable(path, schema);
}

}  // namespace

struct EventLog::Connection {
  explicit Connection(const std::string& path) : database(open_event_database(path)) {}

  Database database;
  Statement add{database, "INSERT INTO event (type, repository, session, issuer, document, time_s) "
                          "VALUES (?, ?, ?, ?, ?, CAST(strftime('%s', 'now') AS INTEGER))"};
  Statement forget{database, "DELETE FROM event WHERE number <= ?"};
  // Of the oldest ones: they came in this order.
  Statement find_old{database, "SELECT max(number), count(*) FROM (SELECT number, time_s FROM event ORDER BY number "
                               "LIMIT ?2) WHERE time_s < ?1"};
  Statement read_after{database,
                       "SELECT number, type, repository, session, issuer, document FROM event WHERE number > ? "
                       "ORDER BY number LIMIT ?"};
  Statement read_last{database, "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'event'"};
  Statement put_position{database, "REPLACE INTO position (source, position) VALUES (?, ?)"};
  Statement drop_position{database, "DELETE FROM position WHERE source = ?"};
  Statement read_position{database, "SELECT position FROM position WHERE source = ?"};
  Statement read_positions{database,
                           "SELECT substr(source, length(?1) + 1), position FROM position "
                           "WHERE source >= ?1 AND source < ?2"};

  std::int64_t last() {
    auto run = read_last.run();
    return run.next() ? run.integer(0) : 0;
  }
};

EventLog::EventLog(const std::string& database_path) : connection_(std::make_unique<Connection>(database_path)) {
  last_.store((*connection_.lock())->last());
}

EventLog::~EventLog() = default;

void EventLog::append(const std::vector<Event>& events, const std::map<std::string, std::string>& positions) {
  auto guard = connection_.lock();
  Connection& connection = **guard;
  Transaction transaction(connection.database);
  for (const Event& event : events) {
    connection.add.execute(event.type, event.repository, event.session, event.issuer, Bytes{event.document});
  }
  for (const auto& [source, position] : positions) {
    if (position.empty()) {
      connection.drop_position.execute(Bytes{source});
    } else {
      connection.put_position.execute(Bytes{source}, position);
    }
  }
  const std::int64_t last = connection.last();
  if (!events.empty()) connection.forget.execute(last - kept_.load());
  transaction.commit();
  last_.store(last);
}

bool EventLog::forget(std::int64_t before_s, std::size_t most) {
  auto guard = connection_.lock();
  Connection& connection = **guard;
  std::int64_t last = 0, count = 0;
  {
    auto run = connection.find_old.run(before_s, static_cast<std::int64_t>(most));
    if (run.next() && !run.is_null(0)) {
      last = run.integer(0);
      count = run.integer(1);
    }
  }
  if (last > 0) connection.forget.execute(last);
  return count == static_cast<std::int64_t>(most);
}

std::optional<std::string> EventLog::position(const std::string& source) const {
  auto guard = connection_.lock();
  auto run = (*guard)->read_position.run(Bytes{source});
  return run.next() ? std::optional(run.bytes(0)) : std::nullopt;
}

std::map<std::string, std::string> EventLog::positions(const std::string& prefix) const {
  auto guard = connection_.lock();
  std::string behind = prefix;
  ++behind.back();
  auto run = (*guard)->read_positions.run(Bytes{prefix}, Bytes{behind});
  std::map<std::string, std::string> found;
  while (run.next()) found.emplace(run.bytes(0), run.bytes(1));
  return found;
}

std::vector<EventLog::Event> EventLog::after(std::int64_t number, std::size_t limit) const {
  auto guard = connection_.lock();
  auto run = (*guard)->read_after.run(number, static_cast<std::int64_t>(limit));
  std::vector<Event> found;
  while (run.next()) {
    found.push_back({run.integer(0), run.bytes(1), run.bytes(2), run.bytes(3), run.bytes(4), run.bytes(5)});
  }
  return found;
}

}  // namespace escrow::storage
