// Lists and counts of sessions: what they show, and that they cost the same with ten and with a thousand (and with ten
// thousand) sessions that have ended. Counted are the steps of SQLite's virtual machine, of every statement.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <functional>

#include "storage/database/schema.h"
#include "storage/database/sqlite_session_catalog.h"
#include "tests/support/sample_record.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

using session::SessionId;
using session::SessionRecord;
using session::State;

std::int64_t counted_steps = 0;

int count_a_statement(unsigned, void*, void* statement, void*) {
  counted_steps += sqlite3_stmt_status(static_cast<sqlite3_stmt*>(statement), SQLITE_STMTSTATUS_VM_STEP, 1);
  return 0;
}

int watch_connection(sqlite3* database, const char**, const sqlite3_api_routines*) {
  return sqlite3_trace_v2(database, SQLITE_TRACE_PROFILE, count_a_statement, nullptr);
}

SessionId numbered_id(int number) {
  std::string text(SessionId::kSize, '0');
  const std::string digits = std::to_string(number);
  text.replace(text.size() - digits.size(), digits.size(), digits);
  return *SessionId::parse(text);
}

SessionRecord record_of(int number, State state, const std::string& issuer, std::int64_t created_s) {
  SessionRecord record = support::sample_record(numbered_id(number));
  record.state = state;
  record.options.audit.issuer = issuer;
  record.created = {created_s, 0};
  record.changed = {created_s, 0};
  return record;
}

class SessionQueries : public testing::Test {
 protected:
  SessionQueries() { sqlite3_auto_extension(reinterpret_cast<void (*)()>(watch_connection)); }
  ~SessionQueries() override { sqlite3_reset_auto_extension(); }

  static std::int64_t steps_of(const std::function<void()>& work) {
    counted_steps = 0;
    work();
    return counted_steps;
  }

  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }

  // Of as many sessions that have ended, with a history and a denial, and of ten that have not. Every hundredth is
  // bob's, and every seventh of the others was rolled back.
  std::string filled(int ended) const {
    const std::string file = path("catalog-" + std::to_string(ended));
    SqliteSessionCatalog catalog(file);
    for (int number = 0; number < 10; ++number) {
      catalog.insert(record_of(900'000 + number, State::open, "user:alice", 5'000'000 + number));
    }
    catalog.insert(record_of(800'000, State::committed, "user:alice", 1));
    catalog.add_denials(numbered_id(800'000), {{"open", "x", "rule", 1, {1, 0}, {1, 0}}});
    Database database(file, {});
    std::string others;
    Statement columns(database, "SELECT name FROM pragma_table_info('session') WHERE name NOT IN "
                                "('id', 'state', 'issuer', 'created_s', 'changed_s')");
    for (auto run = columns.run(); run.next();) others += ", \"" + run.bytes(0) + "\"";
    database.execute(
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " + std::to_string(ended) +
         ") INSERT INTO session (id, state, issuer, created_s, changed_s" + others +
         ") SELECT printf('%016d', i), iif(i % 100 <> 0 AND i % 7 = 0, 'rolled_back', 'committed'), "
         "iif(i % 100 = 0, 'user:bob', 'user:alice'), 100 + i, 100 + i" + others +
         " FROM n JOIN session ON id = '0000000000800000'")
            .c_str());
    database.execute(
        "INSERT INTO history (session, time_s, time_ns, to_state, who, why) "
        "SELECT id, created_s, 0, state, issuer, '' FROM session WHERE length(trim(id, '0')) < 6");
    database.execute(
        "INSERT INTO denial (session, operation, path, rule, count, first_s, first_ns, last_s, last_ns) "
        "SELECT id, 'open', x'61', 'rule', 2, 1, 0, 1, 0 FROM session WHERE id < '0000000000800000'");
    return file;
  }

  support::TemporaryDirectory directory_;
};

TEST_F(SessionQueries, WhatHasEndedCostsNothing) {
  const std::string few_path = filled(10), many_path = filled(10'000);
  SqliteSessionCatalog few(few_path), many(many_path);
  const auto costs_the_same = [&](const char* what, const std::function<void(SqliteSessionCatalog&)>& work) {
    const std::int64_t with_few = steps_of([&] { work(few); }), with_many = steps_of([&] { work(many); });
    EXPECT_GT(with_few, 0) << what;
    // A page that is full costs what a page costs; it is full with ten already.
    EXPECT_LE(with_many, with_few * 2 + 200) << what;
  };
  costs_the_same("unended", [](auto& catalog) { EXPECT_EQ(catalog.unended().size(), 10u); });
  costs_the_same("counts", [](auto& catalog) { EXPECT_EQ(catalog.counts().by_state.at(State::open), 10u); });
  costs_the_same("find_by_prefix", [](auto& catalog) { EXPECT_EQ(catalog.find_by_prefix("00").size(), 11u); });
  costs_the_same("the first page", [](auto& catalog) { EXPECT_EQ(catalog.page({.limit = 5}).size(), 5u); });
  costs_the_same("the newest that have ended", [](auto& catalog) {
    const SessionQuery query{.order = SessionOrder::newest_first, .has_ended = true, .limit = 5};
    EXPECT_EQ(catalog.page(query).size(), 5u);
  });
  costs_the_same("those that have not ended", [](auto& catalog) {
    EXPECT_EQ(catalog.page({.has_ended = false}).size(), 10u);
  });
  costs_the_same("in a state", [](auto& catalog) {
    EXPECT_EQ(catalog.page({.state = State::open, .limit = 5}).size(), 5u);
    EXPECT_EQ(catalog.page({.state = State::commit_failed, .limit = 5}).size(), 0u);
    EXPECT_EQ(catalog.page({.state = State::committed, .limit = 5}).size(), 5u);
  });
  costs_the_same("of an issuer", [](auto& catalog) {
    EXPECT_EQ(catalog.page({.issuer = "user:nobody"}).size(), 0u);
    EXPECT_EQ(catalog.page({.issuer = "user:bob", .state = State::rolled_back}).size(), 0u);
    EXPECT_EQ(catalog.page({.issuer = "user:alice", .has_ended = false, .limit = 5}).size(), 5u);
  });
  costs_the_same("behind a position", [](auto& catalog) {
    EXPECT_EQ(catalog.page({.after = SessionPosition{{4'999'999, 0}, ""}, .limit = 20}).size(), 10u);
  });
  costs_the_same("by the beginning of an id", [](auto& catalog) {
    const SessionQuery query{.order = SessionOrder::by_id, .issuer = "user:alice", .id_prefix = "0000000000900"};
    EXPECT_EQ(catalog.page(query).size(), 10u);
  });
  costs_the_same("of what has changed lately", [](auto& catalog) {
    EXPECT_EQ(catalog.page({.changed_since = session::Timestamp{5'000'000, 0}}).size(), 10u);
  });
  costs_the_same("prune", [](auto& catalog) { EXPECT_EQ(catalog.prune({2, 0}), 1u); });
  costs_the_same("forget", [](auto& catalog) { catalog.forget(numbered_id(3)); });
  costs_the_same("an opening and its end", [](auto& catalog) {
    SessionRecord record = record_of(700'000, State::open, "user:alice", 6'000'000);
    catalog.insert(record);
    record.state = State::committed;
    catalog.transition(State::open, record, "user:alice", "done");
  });
  costs_the_same("denials", [](auto& catalog) {
    catalog.add_denials(numbered_id(5), {{"open", "y", "rule", 1, {1, 0}, {1, 0}}});
    EXPECT_EQ(catalog.denied_calls(numbered_id(5)), 3u);
    EXPECT_EQ(catalog.numbers().denial, 2);
  });
}

TEST_F(SessionQueries, PagesShowEachSessionOnceInTheirOrder) {
  SqliteSessionCatalog catalog(filled(500));
  const std::vector<SessionRecord> oldest_first = catalog.list();
  for (const SessionOrder order : {SessionOrder::oldest_first, SessionOrder::newest_first, SessionOrder::by_id}) {
    for (const auto& query : {SessionQuery{}, SessionQuery{.issuer = "user:bob"}, SessionQuery{.has_ended = true},
                              SessionQuery{.state = State::rolled_back},
                              SessionQuery{.issuer = "user:alice", .state = State::committed},
                              SessionQuery{.changed_since = session::Timestamp{300, 0}}}) {
      SessionQuery page = query;
      page.order = order;
      page.limit = 7;
      std::vector<SessionRecord> seen;
      for (std::size_t found = page.limit; found == page.limit;) {
        const std::vector<SessionRecord> some = catalog.page(page);
        found = some.size();
        seen.insert(seen.end(), some.begin(), some.end());
        if (found > 0) page.after = {some.back().created, some.back().id.text()};
      }
      std::vector<SessionId> expected, ids;
      std::vector<SessionRecord> all = oldest_first;
      if (order == SessionOrder::newest_first) std::ranges::reverse(all);
      if (order == SessionOrder::by_id) std::ranges::sort(all, {}, &SessionRecord::id);
      for (const SessionRecord& record : all) {
        const bool is_wanted = (!query.issuer || record.options.audit.issuer == *query.issuer) &&
                               (!query.state || record.state == *query.state) &&
                               (!query.has_ended || session::is_final(record.state) == *query.has_ended) &&
                               (!query.changed_since || record.changed >= *query.changed_since);
        if (is_wanted) expected.push_back(record.id);
      }
      for (const SessionRecord& record : seen) ids.push_back(record.id);
      EXPECT_FALSE(ids.empty());
      EXPECT_EQ(ids, expected) << static_cast<int>(order);
    }
  }
  EXPECT_TRUE(catalog.page({.state = State::open, .has_ended = true}).empty());
  EXPECT_TRUE(catalog.page({.order = SessionOrder::by_id, .id_prefix = "' OR 1 --"}).empty());
}

TEST_F(SessionQueries, CountsAreThoseOfTheRowsWhateverHappens) {
  const std::string file = filled(300);
  SqliteSessionCatalog catalog(file);
  Database database(file, {});
  const auto agrees = [&](const char* when) {
    const SessionCounts counts = catalog.counts();
    for (const State state : {State::open, State::awaiting_approval, State::committing, State::committed,
                              State::commit_failed, State::rolled_back}) {
      const std::string sql = std::string("SELECT count(*) FROM session WHERE state = '") + name_of(state) + "'";
      EXPECT_EQ(counts.by_state.at(state), static_cast<std::uint64_t>(database.integer(sql.c_str()))) << when;
    }
    EXPECT_EQ(counts.denied_calls,
              static_cast<std::uint64_t>(database.integer("SELECT sum(count) FROM denial"))) << when;
  };
  agrees("filled");
  SessionRecord record = record_of(700'000, State::open, "user:alice", 6'000'000);
  catalog.insert(record);
  agrees("opened");
  catalog.note(record, "host", "mounted");
  agrees("noted");
  record.state = State::rolled_back;
  catalog.transition(State::open, record, "user:alice", "why");
  agrees("rolled back");
  catalog.add_denials(record.id, {{"open", "y", "rule", 7, {1, 0}, {1, 0}}});
  catalog.add_denials(record.id, {{"open", "y", "rule", 2, {1, 0}, {1, 0}}});
  agrees("denied");
  catalog.forget(record.id);
  agrees("forgotten");
  EXPECT_EQ(catalog.prune({350, 0}), 250u);
  agrees("pruned");
  // As a host of an older Escrow writes that goes on while the catalog is migrated.
  database.execute("REPLACE INTO session SELECT * FROM session WHERE state = 'open'");
  agrees("replaced by an older one");
}

// As an older Escrow left it.
TEST_F(SessionQueries, AnOlderCatalogIsCountedWhenItIsMigrated) {
  const std::string file = path("catalog.db");
  const Schema fourth{"session catalog", catalog_schema().application_id, catalog_schema().migrations.first(4)};
  {
    Database database(file, {.create = true});
    migrate(database, fourth);
    database.execute(R"(
      INSERT INTO session (id, state, reason, branch, prefix, committer, issuer, source, image, trigger_name,
        trigger_id, uid, gid, umask, read_only, ephemeral, keep_on_failure, excludes, message, mountpoint, last_error,
        conflicts, created_s, created_ns, changed_s, changed_ns)
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20)
        SELECT printf('%016d', i), iif(i < 4, 'open', 'committed'), 'none', CAST('main' AS BLOB), x'', 'user:alice',
          'user:alice', 'sandbox', '', '', '', 0, 0, 18, 0, 0, 0, x'', x'', x'', '', x'', i, 0, i, 0 FROM n;
      INSERT INTO denial (session, operation, path, rule, count, first_s, first_ns, last_s, last_ns)
        VALUES ('0000000000000001', 'open', x'61', 'rule', 5, 1, 0, 1, 0);
    )");
  }
  SqliteSessionCatalog catalog(file);
  const SessionCounts counts = catalog.counts();
  EXPECT_EQ(counts.by_state.at(State::open), 3u);
  EXPECT_EQ(counts.by_state.at(State::committed), 17u);
  EXPECT_EQ(counts.by_state.at(State::rolled_back), 0u);
  EXPECT_EQ(counts.denied_calls, 5u);
  EXPECT_EQ(catalog.unended().size(), 3u);
  EXPECT_EQ(catalog.page({.has_ended = true, .limit = 30}).size(), 17u);
  // An older Escrow does not write to it: it would not keep the counts.
  Database database(file, {});
  EXPECT_THROW(migrate(database, fourth), session::Error);
}

}  // namespace
}  // namespace escrow::storage
