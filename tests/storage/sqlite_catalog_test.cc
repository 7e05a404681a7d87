// What only the catalog on disk does: several connections, history, versions, damage.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <set>
#include <thread>

#include "session/base/error.h"
#include "storage/database/schema.h"
#include "storage/database/sqlite_session_catalog.h"
#include "tests/support/sample_record.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;
using session::SessionId;
using session::SessionRecord;
using session::State;

class SqliteCatalog : public testing::Test {
 protected:
  Error error_of_opening() {
    try {
      SqliteSessionCatalog catalog(path_);
    } catch (const Error& error) {
      return error;
    }
    return Error(Errc::not_found, "nothing was thrown");
  }

  support::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/catalog.db";
};

TEST_F(SqliteCatalog, RecordsAreThereForTheNextProcess) {
  const SessionId id = SessionId::generate();
  SqliteSessionCatalog(path_).insert(support::sample_record(id));
  EXPECT_EQ(support::describe(*SqliteSessionCatalog(path_).find(id)), support::describe(support::sample_record(id)));
}

TEST_F(SqliteCatalog, TransitionsOfManyThreadsShareTheirCommitsAndEachIsDecidedAlone) {
  SqliteSessionCatalog catalog(path_);
  constexpr int kThreads = 12, kTurns = 20;
  const SessionRecord contested = support::sample_record(SessionId::generate());
  catalog.insert(contested);
  std::atomic<int> won = 0, refused = 0, wrong = 0;
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < kTurns; ++turn) {
        SessionRecord own = support::sample_record(SessionId::generate());
        catalog.insert(own);
        own.state = State::rolled_back;
        catalog.transition(State::open, own, "user:bob", "done");
        // On disk, and for another connection to see, when it is reported.
        if (SqliteSessionCatalog(path_).find(own.id)->state != State::rolled_back) ++wrong;
        try {
          SessionRecord taken = contested;
          taken.state = State::committing;
          catalog.transition(State::open, taken, "user:bob", "mine");
          ++won;
        } catch (const Error& error) {
          if (error.code() == Errc::wrong_state) ++refused;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(won.load(), 1);
  EXPECT_EQ(refused.load(), kThreads * kTurns - 1);
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(catalog.list().size(), std::size_t{kThreads * kTurns + 1});
  EXPECT_EQ(catalog.history(contested.id).size(), 2u);
}

TEST_F(SqliteCatalog, EveryTransitionIsInTheHistory) {
  SqliteSessionCatalog catalog(path_);
  SessionRecord record = support::sample_record(SessionId::generate());
  catalog.insert(record);
  record.state = State::rolled_back;
  record.changed = {300, 1};
  catalog.transition(State::open, record, "user:bob", "exit status 1");
  const auto history = catalog.history(record.id);
  ASSERT_EQ(history.size(), 2u);
  EXPECT_EQ(history[0].from, std::nullopt);
  EXPECT_EQ(history[0].to, State::open);
  EXPECT_EQ(history[0].who, "agent:bot");
  EXPECT_EQ(history[1].from, State::open);
  EXPECT_EQ(history[1].to, State::rolled_back);
  EXPECT_EQ(history[1].time, (session::Timestamp{300, 1}));
  EXPECT_EQ(history[1].who, "user:bob");
  EXPECT_EQ(history[1].why, "exit status 1");
  catalog.prune({400, 0});
  EXPECT_TRUE(catalog.history(record.id).empty());
}

TEST_F(SqliteCatalog, OfASessionThatIsForgottenNothingStaysAndOneThatIsOpenIsNotForgotten) {
  SqliteSessionCatalog catalog(path_);
  SessionRecord record = support::sample_record(SessionId::generate());
  const SessionRecord other = support::sample_record(SessionId::generate());
  for (const SessionRecord& one : {record, other}) {
    catalog.insert(one);
    catalog.add_denials(one.id, {{.operation = "open", .path = "x", .rule = "1", .count = 1, .first = {}, .last = {}}});
  }
  catalog.forget(record.id);
  EXPECT_TRUE(catalog.find(record.id));
  record.state = State::rolled_back;
  catalog.transition(State::open, record, "user:bob", "not_started");
  catalog.forget(record.id);
  EXPECT_FALSE(catalog.find(record.id));
  EXPECT_TRUE(catalog.history(record.id).empty());
  EXPECT_TRUE(catalog.denials(record.id).empty());
  EXPECT_EQ(catalog.history(other.id).size(), 1u);
  EXPECT_EQ(catalog.denials(other.id).size(), 1u);
}

TEST_F(SqliteCatalog, ManyConnectionsCreateAndFillOneDatabaseAtOnce) {
  constexpr int kThreads = 8, kEach = 20;
  std::vector<std::thread> threads;
  std::atomic<int> failures = 0;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      try {
        SqliteSessionCatalog catalog(path_);
        for (int n = 0; n < kEach; ++n) catalog.insert(support::sample_record(SessionId::generate()));
      } catch (const std::exception& error) {
        ++failures;
        ADD_FAILURE() << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(SqliteSessionCatalog(path_).list().size(), static_cast<std::size_t>(kThreads * kEach));
}

TEST_F(SqliteCatalog, OfConcurrentTransitionsFromOneStateOnlyOneWins) {
  const SessionId id = SessionId::generate();
  SqliteSessionCatalog(path_).insert(support::sample_record(id));
  std::atomic<int> wins = 0, refusals = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      SqliteSessionCatalog catalog(path_);
      SessionRecord record = support::sample_record(id);
      record.state = State::committing;
      try {
        catalog.transition(State::open, record, "who", "why");
        ++wins;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::wrong_state) << error.what();
        ++refusals;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wins, 1);
  EXPECT_EQ(refusals, 7);
}

TEST_F(SqliteCatalog, AStateOfALaterVersionIsRefusedUnchanged) {
  { SqliteSessionCatalog catalog(path_); }
  Database(path_, {}).execute("PRAGMA user_version = 99");
  const Error error = error_of_opening();
  EXPECT_EQ(error.code(), Errc::newer_state);
  EXPECT_NE(std::string(error.what()).find(path_), std::string::npos) << error.what();
  EXPECT_EQ(Database(path_, {}).integer("PRAGMA user_version"), 99);
}

TEST_F(SqliteCatalog, AnotherProgramsDatabaseIsRefusedUnchanged) {
  Database(path_, {.create = true}).execute("CREATE TABLE theirs (x)");
  EXPECT_EQ(error_of_opening().code(), Errc::damaged_repository);
  EXPECT_EQ(Database(path_, {}).integer("SELECT count(*) FROM sqlite_schema"), 1);
}

TEST_F(SqliteCatalog, AFileThatIsNoDatabaseIsDamagedAndNamed) {
  std::ofstream(path_) << std::string(8192, 'x');
  const Error error = error_of_opening();
  EXPECT_EQ(error.code(), Errc::damaged_repository);
  EXPECT_NE(std::string(error.what()).find(path_), std::string::npos) << error.what();
}

TEST_F(SqliteCatalog, AMissingDirectoryIsOneSentence) {
  try {
    SqliteSessionCatalog catalog(directory_.path() + "/nowhere/catalog.db");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/nowhere/catalog.db"), std::string::npos) << error.what();
  }
}

TEST_F(SqliteCatalog, OlderStateMigratesForwardAndKeepsItsRows) {
  static constexpr const char* kSteps[] = {"CREATE TABLE t (a); INSERT INTO t VALUES (1)",
                                           "ALTER TABLE t ADD COLUMN b DEFAULT 7"};
  const Schema first{"test state", 77, std::span(kSteps).first(1)}, second{"test state", 77, kSteps};
  Database database(path_, {.create = true});
  migrate(database, first);
  migrate(database, second);
  migrate(database, second);
  EXPECT_EQ(database.integer("PRAGMA user_version"), 2);
  EXPECT_EQ(database.integer("SELECT a + b FROM t"), 8);
  EXPECT_THROW(migrate(database, first), Error);
}

// A row as version 1 wrote it: an open session, whose host may be alive while a newer Escrow migrates the database.
TEST_F(SqliteCatalog, RowsOfTheFirstVersionKeepWhatTheySaidAndGoOn) {
  const Schema first{"session catalog", catalog_schema().application_id, catalog_schema().migrations.first(1)};
  {
    Database database(path_, {.create = true});
    migrate(database, first);
    database.execute(R"(
      INSERT INTO session VALUES ('aaaa000000000000', 'open', 'none', CAST('main' AS BLOB), x'64ff', 'user:alice',
        'agent:bot', 'sandbox', 'debian:12', 'cron', '42', 7, 8, 18, 0, 1, 1, x'2a2e746d7000',
        '5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a', NULL, NULL, NULL, 3, x'736179ff', x'2f6d6e74', 'the disk was full',
        x'6100', 100, 5, 200, 6);
      INSERT INTO history (session, time_s, time_ns, to_state, who, why)
        VALUES ('aaaa000000000000', 100, 5, 'open', 'agent:bot', 'created');
    )");
  }
  SqliteSessionCatalog catalog(path_);
  EXPECT_EQ(Database(path_, {}).integer("PRAGMA user_version"),
            static_cast<std::int64_t>(catalog_schema().migrations.size()));
  const SessionId id = *SessionId::parse("aaaa000000000000");
  ASSERT_EQ(catalog.list().size(), 1u);
  SessionRecord record = *catalog.find(id);
  EXPECT_EQ(record.state, State::open);
  EXPECT_EQ(record.options.branch, "main");
  EXPECT_EQ(record.options.prefix.text(), "d\xff");
  EXPECT_EQ(record.options.audit.committer, "user:alice");
  EXPECT_EQ(record.options.excludes, std::vector<std::string>{"*.tmp"});
  EXPECT_TRUE(record.options.ephemeral);
  EXPECT_TRUE(record.options.keep_on_failure);
  EXPECT_EQ(record.base->hex(), "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a");
  EXPECT_EQ(record.exit_code, 3);
  EXPECT_EQ(record.message, "say\xff");
  EXPECT_EQ(record.mountpoint, "/mnt");
  EXPECT_EQ(record.conflicts, std::vector<std::string>{"a"});
  EXPECT_EQ(record.changed, (session::Timestamp{200, 6}));
  // What the first version did not know: nothing was asked for, nothing is known.
  EXPECT_FALSE(record.options.require_approval);
  EXPECT_TRUE(record.options.policies.empty());
  EXPECT_TRUE(record.options.command.empty());
  EXPECT_FALSE(record.result);
  EXPECT_FALSE(record.expires);
  EXPECT_FALSE(record.counts);
  EXPECT_EQ(record.reviewer, "");
  EXPECT_EQ(record.options.limits.files, 0u);
  EXPECT_TRUE(record.unresolved.empty());
  EXPECT_FALSE(record.updating_keeps);
  EXPECT_FALSE(record.resumes);
  ASSERT_EQ(catalog.history(id).size(), 1u);
  record.state = State::rolled_back;
  catalog.transition(State::open, record, "recovery", "host_lost");
  EXPECT_EQ(catalog.find(id)->state, State::rolled_back);
  EXPECT_EQ(catalog.history(id).size(), 2u);
}

// Whoever had a hand in the older one must not review the new one as if it were a stranger's.
TEST_F(SqliteCatalog, TheHistoriesOfBothSayWhoResumedWhatAndWhoHadAPartInIt) {
  SqliteSessionCatalog catalog(path_);
  const SessionId older = SessionId::generate(), newer = SessionId::generate();
  SessionRecord record = support::sample_record(older);
  record.options.audit.committer = "user:alice";
  record.options.audit.issuer = "agent:bot";
  record.resumes.reset();
  catalog.insert(record);
  catalog.remark(older, {1, 0}, "user:dave", "wrote files");
  record.state = State::awaiting_approval;
  catalog.transition(State::open, record, "run", "sealed");
  catalog.remark(older, {2, 0}, "user:rita", "looked at it");

  SessionRecord next = support::sample_record(newer);
  next.options.audit.committer = next.options.audit.issuer = "user:carol";
  next.resumes = older;
  catalog.insert(next);
  EXPECT_EQ(catalog.history(older).back().why, "resumed as session " + newer.text());
  EXPECT_EQ(catalog.history(older).back().who, "user:carol");
  EXPECT_EQ(catalog.history(older).back().to, State::awaiting_approval);
  std::set<std::string> who;
  for (const Transition& step : catalog.history(newer)) {
    who.insert(step.who);
    EXPECT_EQ(step.to, State::open);
  }
  EXPECT_EQ(who, (std::set<std::string>{"agent:bot", "user:alice", "user:carol", "user:dave"}));
  // One whose record was dropped meanwhile keeps nobody from going on.
  SessionRecord alone = support::sample_record(SessionId::generate());
  alone.resumes = SessionId::generate();
  catalog.insert(alone);
  EXPECT_EQ(catalog.history(alone.id).size(), 1u);
}

TEST_F(SqliteCatalog, WhoeverFollowsItIsToldWhatIsNewByNumbersThatOnlyGrow) {
  SqliteSessionCatalog catalog(path_), other(path_);
  const SessionId id = SessionId::generate();
  SessionRecord record = support::sample_record(id);
  catalog.insert(record);
  record.state = State::rolled_back;
  other.transition(State::open, record, "user:bob", "why");
  const auto all = catalog.transitions_after(0, 10);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].session, id);
  EXPECT_EQ(all[1].transition.to, State::rolled_back);
  EXPECT_EQ(catalog.transitions_after(0, 1).size(), 1u);
  EXPECT_EQ(catalog.numbers().transition, all[1].number);
  EXPECT_TRUE(catalog.transitions_after(all[1].number, 10).empty());

  catalog.add_denials(id, {{"open", "a", "rule", 1, {1, 0}, {1, 0}}, {"open", "b", "rule", 1, {1, 0}, {1, 0}}});
  const std::int64_t first = catalog.numbers().denial;
  EXPECT_EQ(catalog.denials_after(0, 10).size(), 2u);
  other.add_denials(id, {{"open", "b", "rule", 2, {2, 0}, {2, 0}}});
  const auto again = catalog.denials_after(first, 10);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].denial.path, "b");
  EXPECT_EQ(again[0].denial.count, 3u);
  catalog.prune({1'000'000, 0});
  EXPECT_TRUE(catalog.denials_after(0, 10).empty());
  EXPECT_EQ(catalog.numbers().denial, again[0].number);
}

TEST_F(SqliteCatalog, AMigrationThatFailsLeavesTheStateAsItWas) {
  static constexpr const char* kSteps[] = {"CREATE TABLE t (a)", "CREATE TABLE u (a); CREATE TABLE t (a)"};
  Database database(path_, {.create = true});
  migrate(database, {"test state", 77, std::span(kSteps).first(1)});
  EXPECT_THROW(migrate(database, {"test state", 77, kSteps}), Error);
  EXPECT_EQ(database.integer("PRAGMA user_version"), 1);
  EXPECT_EQ(database.integer("SELECT count(*) FROM sqlite_schema WHERE name = 'u'"), 0);
}

}  // namespace
}  // namespace escrow::storage
