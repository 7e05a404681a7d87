// What only the journal on disk does: created late, durable at a barrier, damaged or newer files.
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "session/base/error.h"
#include "storage/database/sqlite.h"
#include "storage/staging/file_staging_area.h"
#include "storage/staging/sqlite_session_journal.h"
#include "tests/support/journal_rows.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;

class SqliteJournal : public testing::Test {
 protected:
  static session::JournalBatch batch_of(std::uint64_t first, std::uint64_t count) {
    session::JournalBatch batch;
    for (std::uint64_t node = first; node < first + count; ++node) batch.nodes.push_back(support::sample_node(node));
    return batch;
  }
  Error error_of_loading() {
    try {
      SqliteSessionJournal(directory_.path()).load();
    } catch (const Error& error) {
      return error;
    }
    return Error(Errc::not_found, "nothing was thrown");
  }

  support::TemporaryDirectory directory_;
  const std::string file_ = directory_.path() + "/session.db";
};

TEST_F(SqliteJournal, OpeningAndLoadingCreateNoFile) {
  SqliteSessionJournal journal(directory_.path());
  journal.load();
  journal.barrier();
  EXPECT_TRUE(fs::is_empty(directory_.path()));
  journal.append(batch_of(2, 1));
  EXPECT_TRUE(fs::exists(file_));
}

TEST_F(SqliteJournal, WhatWasAppendedSurvivesAKilledProcess) {
  int appended[2];
  ASSERT_EQ(::pipe(appended), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    SqliteSessionJournal journal(directory_.path());
    for (std::uint64_t i = 0;; ++i) {
      journal.append(batch_of(2 + i * 10, 10));
      if (::write(appended[1], "x", 1) != 1) ::_exit(1);
    }
  }
  char bytes[50];
  std::size_t seen = 0;
  while (seen < sizeof bytes) {
    const ssize_t count = ::read(appended[0], bytes, sizeof bytes - seen);
    ASSERT_GT(count, 0);
    seen += static_cast<std::size_t>(count);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(appended[0]);
  ::close(appended[1]);
  const auto state = SqliteSessionJournal(directory_.path()).load();
  EXPECT_GE(state.nodes.size(), seen * 10);
  EXPECT_EQ(state.nodes.size() % 10, 0u) << "a batch is whole or absent";
}

TEST_F(SqliteJournal, ALargeJournalComesBackWhole) {
  SqliteSessionJournal journal(directory_.path());
  for (std::uint64_t i = 0; i < 300; ++i) journal.append(batch_of(2 + i * 100, 100));
  journal.barrier();
  EXPECT_EQ(journal.load().nodes.size(), 30'000u);
}

TEST_F(SqliteJournal, ADamagedFileIsNamed) {
  { SqliteSessionJournal(directory_.path()).append(batch_of(2, 100)); }
  std::fstream(file_, std::ios::in | std::ios::out | std::ios::binary).seekp(0) << std::string(64, 'x');
  const Error error = error_of_loading();
  EXPECT_EQ(error.code(), Errc::damaged_repository);
  EXPECT_NE(std::string(error.what()).find(file_), std::string::npos) << error.what();
}

TEST_F(SqliteJournal, AnImpossibleRowIsDamageNamingFileAndNode) {
  { SqliteSessionJournal(directory_.path()).append(batch_of(2, 3)); }
  Database(file_, {}).execute("UPDATE node SET changed_ns = 1000000000 WHERE node = 3");
  const Error error = error_of_loading();
  EXPECT_EQ(error.code(), Errc::damaged_repository);
  EXPECT_NE(std::string(error.what()).find("node 3"), std::string::npos) << error.what();
}

TEST_F(SqliteJournal, AJournalOfALaterVersionIsRefused) {
  { SqliteSessionJournal(directory_.path()).append(batch_of(2, 1)); }
  Database(file_, {}).execute("PRAGMA user_version = 42");
  EXPECT_EQ(error_of_loading().code(), Errc::newer_state);
}

TEST_F(SqliteJournal, TheFirstLayerIsInTheFirstSchema) {
  { SqliteSessionJournal(directory_.path()).append(batch_of(2, 1)); }
  Database database(file_, {});
  EXPECT_EQ(database.integer("SELECT id FROM layer WHERE parent IS NULL AND sealed = 0"), 1);
  EXPECT_GT(database.integer("SELECT created FROM layer"), 1'000'000'000);
}

// The columns of that version are what is left when those of the later ones are taken away.
TEST_F(SqliteJournal, AJournalOfTheVersionBeforeSavepointsIsReadAndGoesOn) {
  {
    SqliteSessionJournal journal(directory_.path());
    session::JournalBatch batch = batch_of(2, 3);
    for (session::NodeRow& row : batch.nodes) row.sealed.clear(), row.durable.sealed.clear(), row.times.reset();
    journal.append(batch);
  }
  {
    Database older(file_, {});
    for (const char* column : {"node DROP COLUMN sealed", "node DROP COLUMN durable_sealed",
                               "node DROP COLUMN times", "layer DROP COLUMN next_staging", "layer DROP COLUMN context"})
      older.execute((std::string("ALTER TABLE ") + column).c_str());
    older.execute("PRAGMA user_version = 2");
  }
  SqliteSessionJournal journal(directory_.path());
  EXPECT_EQ(journal.load().nodes.size(), 3u);
  EXPECT_TRUE(journal.savepoints().empty());
  session::JournalBatch batch = batch_of(10, 1);
  batch.seals = session::Savepoint{{}, "first", {1'700'000'000, 0}, session::StagingId{12}, ""};
  journal.append(batch);
  EXPECT_EQ(journal.load().nodes.size(), 4u);
  EXPECT_EQ(journal.savepoints().size(), 1u);
}

TEST_F(SqliteJournal, ATransactionThatIsNotCommittedIsUndone) {
  Database database(file_, {.create = true});
  database.execute("CREATE TABLE t (a)");
  {
    Transaction transaction(database);
    database.execute("INSERT INTO t VALUES (1)");
  }
  EXPECT_EQ(database.integer("SELECT count(*) FROM t"), 0);
  {
    Transaction transaction(database);
    database.execute("INSERT INTO t VALUES (1)");
    transaction.commit();
  }
  EXPECT_EQ(database.integer("SELECT count(*) FROM t"), 1);
}

TEST_F(SqliteJournal, AStatementIsReadyAgainAfterEachRun) {
  Database database(file_, {.create = true});
  database.execute("CREATE TABLE t (a, b)");
  Statement insert(database, "INSERT INTO t VALUES (?, ?)");
  insert.execute(1, "one");
  insert.execute(2, std::optional<std::string>());
  Statement read(database, "SELECT a, b FROM t WHERE a >= ?1 ORDER BY a");
  {
    auto abandoned = read.run(1);
    ASSERT_TRUE(abandoned.next());
    EXPECT_EQ(abandoned.bytes(1), "one");
  }
  auto run = read.run(2);
  ASSERT_TRUE(run.next());
  EXPECT_TRUE(run.is_null(1));
  EXPECT_FALSE(run.next());
}

TEST(StagingNames, EveryIdHasOneNameAndOtherNamesHaveNone) {
  for (const std::uint64_t value : {1ull, 10ull, 255ull, ~0ull}) {
    const session::StagingId id{value};
    EXPECT_EQ(FileStagingArea::id_of(FileStagingArea::file_name(id).c_str()), id);
  }
  for (const char* other : {"", ".", "..", "0", "01", "A", "1x", "0x1", " 1", "-1", "fffffffffffffffff"})
    EXPECT_EQ(FileStagingArea::id_of(other), std::nullopt) << other;
}

}  // namespace
}  // namespace escrow::storage
