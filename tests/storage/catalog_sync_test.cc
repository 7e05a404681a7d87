// When the catalog and a session's journal wait for the disk, counted where SQLite asks for it: this program's
// fdatasync(), fsync() and sqlite3_exec() stand before those of the libraries (dlsym(3), RTLD_NEXT).
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <string_view>

#include "session/base/error.h"
#include "storage/database/sqlite.h"
#include "storage/database/sqlite_session_catalog.h"
#include "storage/staging/sqlite_session_journal.h"
#include "tests/support/journal_rows.h"
#include "tests/support/sample_record.h"
#include "tests/support/temporary_directory.h"

namespace {

std::atomic<int> syncs = 0;
std::atomic<int> syncs_of_directories = 0;  // by fsync(2), as ours are; SQLite's are by fdatasync(2)
std::atomic<bool> refuses_to_be_synced = false;  // once
std::atomic<bool> directories_fail = false;
std::atomic<bool> files_fail = false;  // once
std::atomic<bool> indexes_fail_to_grow = false;  // those of logs, in shared memory

int sync_by(long call, int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode)) {
    if (call == SYS_fsync) ++syncs_of_directories;
    if (directories_fail) {
      errno = EIO;
      return -1;
    }
  }
  ++syncs;
  if (!S_ISDIR(status.st_mode) && files_fail.exchange(false)) {
    errno = ENOSPC;
    return -1;
  }
  return static_cast<int>(::syscall(call, descriptor));
}

}  // namespace

extern "C" int fdatasync(int descriptor) { return sync_by(SYS_fdatasync, descriptor); }
extern "C" int fsync(int descriptor) { return sync_by(SYS_fsync, descriptor); }

extern "C" ssize_t pwrite64(int descriptor, const void* bytes, std::size_t size, off64_t at) {
  if (indexes_fail_to_grow) {
    std::error_code failed;
    const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), failed).string();
    if (path.ends_with("-shm")) {
      errno = ENOSPC;
      return -1;
    }
  }
  return ::syscall(SYS_pwrite64, descriptor, bytes, size, at);
}

extern "C" int sqlite3_exec(sqlite3* database, const char* sql, int (*callback)(void*, int, char**, char**),
                            void* first, char** message) {
  if (std::string_view(sql) == "PRAGMA synchronous = FULL" && refuses_to_be_synced.exchange(false)) return SQLITE_NOMEM;
  static const auto next = reinterpret_cast<decltype(&sqlite3_exec)>(::dlsym(RTLD_NEXT, "sqlite3_exec"));
  return next(database, sql, callback, first, message);
}

namespace escrow::storage {
namespace {

using session::Error;
using session::SessionRecord;
using session::State;

class CatalogSync : public testing::Test {
 protected:
  CatalogSync() { refuses_to_be_synced = directories_fail = files_fail = false; }

  static void note(SqliteSessionCatalog& catalog, SessionRecord& record, const std::string& mountpoint) {
    record.mountpoint = mountpoint;
    catalog.note(record, "host", "mounted");
  }
  // Of a write that is to be on disk when it returns.
  static int syncs_of_a_transition(SqliteSessionCatalog& catalog) {
    SessionRecord record = support::sample_record(session::SessionId::generate());
    catalog.insert(record);
    const int before = syncs;
    record.state = State::rolled_back;
    catalog.transition(State::open, record, "who", "why");
    return syncs - before;
  }

  support::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/catalog.db";
  SessionRecord record_ = support::sample_record(session::SessionId::generate());
};

TEST_F(CatalogSync, ANoteDoesNotWaitForTheDiskAndWhatFollowsDoes) {
  SqliteSessionCatalog catalog(path_);
  catalog.insert(record_);
  const int before = syncs;
  for (int turn = 0; turn < 20; ++turn) note(catalog, record_, "/mnt/" + std::to_string(turn));
  EXPECT_EQ(syncs, before);
  EXPECT_GT(syncs_of_a_transition(catalog), 0);
}

TEST_F(CatalogSync, ARefusedNoteLeavesOtherWritesTheirSync) {
  SqliteSessionCatalog catalog(path_);
  EXPECT_THROW(note(catalog, record_, "/mnt"), Error);
  EXPECT_GT(syncs_of_a_transition(catalog), 0);
}

TEST_F(CatalogSync, WhereItCannotBeTurnedOnAgainTheDatabaseIsOpenedAnew) {
  SqliteSessionCatalog catalog(path_);
  catalog.insert(record_);
  for (const char* mountpoint : {"/mnt/one", "/mnt/two"}) {
    refuses_to_be_synced = true;
    note(catalog, record_, mountpoint);
    EXPECT_FALSE(refuses_to_be_synced);
    EXPECT_EQ(catalog.find(record_.id)->mountpoint, mountpoint);
    EXPECT_GT(syncs_of_a_transition(catalog), 0);
  }
  EXPECT_EQ(catalog.history(record_.id).size(), 3u);
}

TEST_F(CatalogSync, ALogWhoseNameCannotBePutOnDiskIsRefused) {
  directories_fail = true;
  EXPECT_THROW(SqliteSessionCatalog{path_}, Error) << "SQLite passes over it";
  EXPECT_THROW(SqliteSessionCatalog{path_}, Error) << "it is tried again, too";
  directories_fail = false;
  SqliteSessionCatalog(path_).insert(record_);
}

TEST_F(CatalogSync, TheLogStaysSoThatItsNameIsPutOnDiskOnce) {
  const int at_first = syncs_of_directories;
  SqliteSessionCatalog(path_).insert(record_);
  EXPECT_EQ(syncs_of_directories, at_first + 1);
  ASSERT_TRUE(std::filesystem::exists(path_ + "-wal"));
  const int before = syncs_of_directories;
  SqliteSessionCatalog catalog(path_);
  EXPECT_GT(syncs_of_a_transition(catalog), 0);
  EXPECT_EQ(syncs_of_directories, before);
  EXPECT_EQ(catalog.list().size(), 2u);
}

TEST_F(CatalogSync, WhatCouldNotBeSyncedIsNotFoundInALogThatStays) {
  const SessionRecord refused = support::sample_record(session::SessionId::generate());
  {
    SqliteSessionCatalog catalog(path_);
    catalog.insert(record_);
    files_fail = true;
    EXPECT_THROW(catalog.insert(refused), Error);
  }
  SqliteSessionCatalog catalog(path_);
  EXPECT_TRUE(catalog.find(record_.id));
  EXPECT_FALSE(catalog.find(refused.id));
}

TEST_F(CatalogSync, NorWhereAnotherProcessIsTheLastToCloseIt) {
  const SessionRecord refused = support::sample_record(session::SessionId::generate());
  {
    const SqliteSessionCatalog other(path_);
    SqliteSessionCatalog catalog(path_);
    catalog.insert(record_);
    files_fail = true;
    EXPECT_THROW(catalog.insert(refused), Error);
  }
  SqliteSessionCatalog catalog(path_);
  EXPECT_TRUE(catalog.find(record_.id));
  EXPECT_FALSE(catalog.find(refused.id));
}

TEST_F(CatalogSync, NorWhereItsProcessIsKilledThen) {
  const SessionRecord refused = support::sample_record(session::SessionId::generate());
  SessionRecord noted = support::sample_record(session::SessionId::generate());
  const pid_t child = ::fork();
  if (child == 0) {
    SqliteSessionCatalog catalog(path_);
    catalog.insert(record_);
    catalog.insert(noted);
    note(catalog, noted, "/mnt/noted");  // is committed without a sync
    files_fail = true;
    try {
      catalog.insert(refused);
    } catch (const Error&) {
      ::kill(::getpid(), SIGKILL);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  SqliteSessionCatalog catalog(path_);
  EXPECT_TRUE(catalog.find(record_.id));
  EXPECT_EQ(catalog.find(noted.id)->mountpoint, "/mnt/noted");
  EXPECT_FALSE(catalog.find(refused.id));
}

TEST_F(CatalogSync, AfterATransactionThatCouldNotBeSyncedOthersAreThere) {
  const SessionRecord refused = support::sample_record(session::SessionId::generate());
  const SessionRecord next = support::sample_record(session::SessionId::generate());
  {
    const SqliteSessionCatalog reader(path_);
    SqliteSessionCatalog catalog(path_);
    catalog.insert(record_);
    for (int round = 0; round < 3; ++round) {
      files_fail = true;
      EXPECT_THROW(catalog.insert(refused), Error);
      EXPECT_EQ(reader.list().size(), 1u);
    }
    catalog.insert(next);
    EXPECT_EQ(reader.list().size(), 2u);
  }
  SqliteSessionCatalog catalog(path_);
  EXPECT_TRUE(catalog.find(record_.id) && catalog.find(next.id));
  EXPECT_FALSE(catalog.find(refused.id));
}

TEST_F(CatalogSync, AShortLogCostsNoSyncWhenItIsOpenedAndClosed) {
  SqliteSessionCatalog(path_).insert(record_);
  const int before = syncs;
  for (int turn = 1; turn <= 4; ++turn) {
    SqliteSessionCatalog(path_).insert(support::sample_record(session::SessionId::generate()));
    EXPECT_EQ(syncs, before + 2 * turn) << "the commit's own, and SQLite's of the directory";
  }
  EXPECT_EQ(SqliteSessionCatalog(path_).list().size(), 5u);
}

TEST_F(CatalogSync, ALongLogIsEmptiedIntoTheDatabaseByTheLastWhoClosesIt) {
  std::uintmax_t longest = 0, at_last = 0;
  for (int turn = 0; turn < 400 && (turn == 0 || at_last > 0); ++turn) {
    SqliteSessionCatalog(path_).insert(support::sample_record(session::SessionId::generate()));
    at_last = std::filesystem::file_size(path_ + "-wal");
    longest = std::max(longest, at_last);
  }
  EXPECT_EQ(at_last, 0u);
  EXPECT_GT(longest, 512u << 10);
  EXPECT_LT(longest, 2u << 20);
}

TEST_F(CatalogSync, WhatWasNotedIsThereWhenTheProcessIsKilled) {
  const pid_t child = ::fork();
  if (child == 0) {
    SqliteSessionCatalog catalog(path_);
    catalog.insert(record_);
    note(catalog, record_, "/mnt/noted");
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(SqliteSessionCatalog(path_).find(record_.id)->mountpoint, "/mnt/noted");
}

// With rows of megabytes, so that the index of the log grows: its first part has room for 4,062 frames.
class LongLog : public testing::Test {
 protected:
  static constexpr const char* kLong = "INSERT INTO t VALUES (1, zeroblob(16000000))";     // 3,907 frames
  static constexpr const char* kBeyond = "INSERT INTO t VALUES (2, zeroblob(1000000))";    // 245 more

  LongLog() { indexes_fail_to_grow = files_fail = false; }
  ~LongLog() override { indexes_fail_to_grow = files_fail = false; }
  Database open() const {
    Database database(path_, {.create = true});
    database.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0");
    return database;
  }
  static void fill(Database& database) {
    database.execute("CREATE TABLE t (n, b)");
    database.execute(kLong);
  }
  std::string rows() const { return open().text("SELECT group_concat(n) FROM (SELECT n FROM t ORDER BY n)"); }

  const support::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/some.db";
};

TEST_F(LongLog, ATransactionThatFailsAfterItsSyncDoesNotComeBack) {
  const pid_t child = ::fork();
  if (child == 0) {
    Database database = open();
    fill(database);
    indexes_fail_to_grow = true;
    try {
      database.execute(kBeyond);
    } catch (const Error&) {
      ::kill(::getpid(), SIGKILL);
    }
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the index did not have to grow";
  EXPECT_EQ(rows(), "1");
}

TEST_F(LongLog, AnErrorTakesNothingBackThatAnotherConnectionHasCommittedSince) {
  Database first = open(), second = open();
  fill(first);
  indexes_fail_to_grow = true;
  EXPECT_THROW(first.execute(kBeyond), Error);
  indexes_fail_to_grow = false;
  second.execute("INSERT INTO t VALUES (3, zeroblob(2000000))");
  const auto committed_bytes = std::filesystem::file_size(path_ + "-wal");
  files_fail = true;
  EXPECT_THROW(first.execute("INSERT INTO t VALUES (4, '')"), Error);
  EXPECT_EQ(rows(), "1,3");
  EXPECT_GE(std::filesystem::file_size(path_ + "-wal"), committed_bytes);
  files_fail = true;  // in a sync before a checkpoint
  first.checkpoint(SQLITE_CHECKPOINT_PASSIVE);
  EXPECT_GE(std::filesystem::file_size(path_ + "-wal"), committed_bytes);
  EXPECT_EQ(rows(), "1,3");
}

TEST(JournalSync, ABarrierThatSqliteCannotMakeIsRefusedAndMadeByTheNext) {
  const support::TemporaryDirectory directory;
  SqliteSessionJournal journal(directory.path());
  const auto append = [&](std::uint64_t node) {
    session::JournalBatch batch;
    batch.nodes = {support::sample_node(node)};
    journal.append(batch);
  };
  append(1);
  journal.barrier();
  append(2);
  refuses_to_be_synced = true;
  EXPECT_THROW(journal.barrier(), Error);
  EXPECT_FALSE(refuses_to_be_synced);
  const int before = syncs;
  journal.barrier();
  EXPECT_GT(syncs, before);
}

}  // namespace
}  // namespace escrow::storage
