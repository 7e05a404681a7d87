// What the staging area says and does when a sync fails, once: the kernel has then dropped what it could not write, and
// a second call would succeed without having written it.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "session/base/error.h"
#include "storage/staging/file_session_directories.h"
#include "storage/staging/sqlite_session_journal.h"
#include "storage/staging/tiered_staging_area.h"
#include "tests/session/eventually.h"
#include "tests/support/journal_rows.h"
#include "tests/support/temporary_directory.h"

namespace {

using Decide = std::function<int(int descriptor)>;
std::atomic<std::shared_ptr<const Decide>> decision;

int call(long number, int descriptor) {
  const std::shared_ptr<const Decide> decide = decision.load();
  const int error = decide ? (*decide)(descriptor) : 0;
  if (error == 0) return static_cast<int>(::syscall(number, descriptor));
  errno = error;
  return -1;
}

// As long as it lives, decides each fdatasync(), fsync() and syncfs() of any thread: 0 lets it go to the kernel,
// anything else is its errno.
class SyncDecision {
 public:
  explicit SyncDecision(Decide decide) { decision.store(std::make_shared<const Decide>(std::move(decide))); }
  ~SyncDecision() { decision.store(nullptr); }
  SyncDecision(const SyncDecision&) = delete;
  SyncDecision& operator=(const SyncDecision&) = delete;
};

std::string path_of(int descriptor) {
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor)).string();
}

}  // namespace

// These stand before those of the C library.
extern "C" int fdatasync(int descriptor) { return call(SYS_fdatasync, descriptor); }
extern "C" int fsync(int descriptor) { return call(SYS_fsync, descriptor); }
extern "C" int syncfs(int descriptor) noexcept { return call(SYS_syncfs, descriptor); }

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;
using session::StagingId;

class StagingSync : public testing::Test {
 protected:
  void put(std::uint64_t id, std::string_view text) {
    area_->write(StagingId{id}, 0, std::as_bytes(std::span(text)));
  }
  void make(std::uint64_t id, std::string_view text) {
    area_->create(StagingId{id});
    put(id, text);
  }
  std::string get(std::uint64_t id) {
    std::string text(area_->usage(StagingId{id}).size_bytes, '?');
    text.resize(area_->read(StagingId{id}, 0, std::as_writable_bytes(std::span(text))));
    return text;
  }
  void reopen() {
    area_.reset();
    area_ = std::make_unique<TieredStagingArea>(path_);
  }
  bool is_refused(const std::function<void()>& sync) {
    try {
      sync();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::input_output) << error.what();
      return true;
    }
    return false;
  }
  bool sync_is_refused(std::uint64_t id) {
    return is_refused([&] { area_->sync(StagingId{id}); });
  }
  bool is_damaged(StagingId id) {
    const auto lost = area_->lost(id);
    return !lost.written.empty() || !lost.copied.empty();
  }
  // Fails the first sync of a file whose path ends so; `then` runs right after, when the kernel drops pages.
  auto failing_once(std::string end, std::function<void()> then = [] {}) {
    auto failed = std::make_shared<std::atomic<bool>>(false);
    return [=](int descriptor) {
      if (!path_of(descriptor).ends_with(end) || failed->exchange(true)) return 0;
      then();
      return EIO;
    };
  }

  const std::string large_ = std::string(100'000, 'x');
  support::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/staging";
  std::unique_ptr<TieredStagingArea> area_ = std::make_unique<TieredStagingArea>(path_);
};

TEST_F(StagingSync, AFileThatCouldNotBeSyncedStaysSoUntilItIsEmptied) {
  make(1, large_);
  make(2, large_);
  {
    const SyncDecision decision(failing_once("/1"));
    EXPECT_TRUE(sync_is_refused(1));
    EXPECT_TRUE(sync_is_refused(1)) << "nothing was written again";
    EXPECT_FALSE(sync_is_refused(2));
  }
  EXPECT_TRUE(is_damaged(StagingId{1}));
  EXPECT_FALSE(is_damaged(StagingId{2}));
  reopen();
  EXPECT_TRUE(is_damaged(StagingId{1})) << "the next process knows it, too";
  EXPECT_TRUE(sync_is_refused(1));
  area_->truncate(StagingId{1}, 0);
  put(1, large_);
  EXPECT_FALSE(sync_is_refused(1));
  EXPECT_FALSE(is_damaged(StagingId{1}));
  reopen();
  EXPECT_FALSE(is_damaged(StagingId{1}));
}

TEST_F(StagingSync, WhatWasWrittenInAFileSinceItsLastSyncHasToBeWrittenAgain) {
  make(1, large_);
  area_->sync(StagingId{1});
  const auto put_at = [&](std::uint64_t offset, std::uint64_t size) {
    area_->write(StagingId{1}, offset, std::as_bytes(std::span(large_)).first(size));
  };
  put_at(10'000, 1'000);
  put_at(50'000, 2'000);
  area_->write_copy(StagingId{1}, 70'000, std::as_bytes(std::span(large_)).first(500));
  const SyncDecision decision(failing_once("/1"));
  EXPECT_TRUE(sync_is_refused(1));
  using Ranges = std::vector<session::ByteRanges::Range>;
  EXPECT_EQ(area_->lost(StagingId{1}).written.ranges(), (Ranges{{10'000, 11'000}, {50'000, 52'000}}));
  EXPECT_EQ(area_->lost(StagingId{1}).copied.ranges(), (Ranges{{70'000, 70'500}}));
  put_at(10'000, 1'000);
  area_->truncate(StagingId{1}, 70'000);
  EXPECT_TRUE(sync_is_refused(1));
  put_at(49'000, 2'000);
  EXPECT_TRUE(sync_is_refused(1));
  put_at(51'000, 1'000);
  EXPECT_FALSE(is_damaged(StagingId{1}));
  EXPECT_FALSE(sync_is_refused(1));
  reopen();
  EXPECT_FALSE(is_damaged(StagingId{1}));
}

TEST_F(StagingSync, OfTwoThreadsThatSyncOneFileNoneMissesTheFailure) {
  make(1, large_);
  std::promise<void> begun;
  std::atomic<int> calls = 0, refused = 0;
  std::atomic<pid_t> second = 0;
  const SyncDecision decision([&](int descriptor) {
    if (!path_of(descriptor).ends_with("/1") || ++calls > 1) return 0;
    begun.set_value();
    // The other one is in its call, and waits there, or it has come back from it.
    EXPECT_TRUE(support::eventually([&] { return second != 0 && support::is_waiting(second); }));
    return EIO;
  });
  std::thread first([&] { refused += sync_is_refused(1); });
  begun.get_future().wait();
  second = ::gettid();
  refused += sync_is_refused(1);
  first.join();
  EXPECT_EQ(refused, 2);
}

TEST_F(StagingSync, WhatLiesInASegmentThatCouldNotBeSyncedIsWrittenAgainElsewhere) {
  make(1, "one");
  make(2, "two");
  area_->write_behind();
  {
    const SyncDecision decision(failing_once("/small-1"));
    EXPECT_TRUE(sync_is_refused(1));
    EXPECT_FALSE(sync_is_refused(2)) << "by now it is in another segment";
    EXPECT_FALSE(sync_is_refused(1));
  }
  std::filesystem::remove(path_ + "/small-1");
  reopen();
  EXPECT_EQ(get(1), "one");
  EXPECT_EQ(get(2), "two");
}

TEST_F(StagingSync, TheNextProcessDoesNotBelieveASegmentThatCouldNotBeSynced) {
  make(1, "one");
  area_->write_behind();
  {
    // Killed before anything was appended again.
    const SyncDecision decision(failing_once("/small-1"));
    EXPECT_TRUE(sync_is_refused(1));
  }
  reopen();
  EXPECT_EQ(get(1), "one");
  EXPECT_FALSE(sync_is_refused(1));
  std::filesystem::remove(path_ + "/small-1");
  reopen();
  EXPECT_EQ(get(1), "one");
}

TEST_F(StagingSync, ARecordThatIsLostIsSaidAndNeverTakenForItsFile) {
  make(1, "one");
  make(2, "two");
  area_->write_behind();
  const auto lose_the_first = [&] {
    std::fstream log(path_ + "/small-1", std::ios::in | std::ios::out | std::ios::binary);
    log.seekp(24).put('X');
  };
  {
    const SyncDecision decision(failing_once("/small-1", lose_the_first));
    EXPECT_TRUE(sync_is_refused(2));
    EXPECT_FALSE(sync_is_refused(2));
    EXPECT_TRUE(sync_is_refused(1));
  }
  EXPECT_TRUE(is_damaged(StagingId{1}));
  EXPECT_FALSE(is_damaged(StagingId{2}));
  EXPECT_THROW(get(1), Error);
  EXPECT_EQ(get(2), "two");
  area_->truncate(StagingId{1}, 0);
  put(1, "anew");
  EXPECT_FALSE(sync_is_refused(1));
  EXPECT_EQ(get(1), "anew");
}

TEST_F(StagingSync, ASyncOfTheDirectoryIsWaitedForByAllWhoNeedIt) {
  area_->create(StagingId{1});
  put(1, large_);
  std::promise<void> begun, may_end;
  std::atomic<bool> ended = false, returned_early = false;
  const SyncDecision decision([&](int descriptor) {
    if (!path_of(descriptor).ends_with("/staging") || ended) return 0;
    begun.set_value();
    may_end.get_future().wait();
    ended = true;
    return 0;
  });
  std::thread first([&] { area_->sync_directory(); });
  begun.get_future().wait();
  std::atomic<pid_t> asking = 0;
  std::atomic<bool> returned = false;
  std::thread second([&] {
    asking = ::gettid();
    area_->sync_directory();
    returned_early = !ended;
    returned = true;
  });
  EXPECT_TRUE(support::eventually([&] { return returned || (asking != 0 && support::is_waiting(asking)); }));
  EXPECT_FALSE(returned);
  may_end.set_value();
  first.join();
  second.join();
  EXPECT_FALSE(returned_early);
}

TEST_F(StagingSync, NamesThatCouldNotBeSyncedAreSyncedByTheNextCall) {
  make(1, large_);
  int calls = 0;
  const auto fail = failing_once("/staging");
  const SyncDecision decision([&](int descriptor) {
    calls += path_of(descriptor).ends_with("/staging");
    return fail(descriptor);
  });
  EXPECT_TRUE(sync_is_refused(1)) << "a file without a name is not on disk";
  EXPECT_FALSE(sync_is_refused(1));
  EXPECT_EQ(calls, 2);
}

TEST_F(StagingSync, ASyncOfNamesThatFailsIsSaidAlsoWhereTheLogHasNone) {
  make(1, "small");
  area_->sync_directory();
  make(2, large_);
  const SyncDecision decision(failing_once("/staging"));
  EXPECT_TRUE(is_refused([&] { area_->sync_directory(); }));
  EXPECT_FALSE(is_refused([&] { area_->sync_directory(); }));
}

// syncfs(2) may have failed for a file of somebody else's.
TEST_F(StagingSync, WhereASyncOfAllFailsEachFileIsSyncedByItself) {
  make(1, large_);
  make(2, large_);
  area_->sync_directory();
  std::vector<std::string> synced;
  const auto fail = failing_once("/staging");
  const SyncDecision decision([&](int descriptor) {
    synced.push_back(std::filesystem::path(path_of(descriptor)).filename());
    return fail(descriptor);
  });
  EXPECT_FALSE(is_refused([&] { area_->sync_all(); }));
  std::sort(synced.begin(), synced.end());
  EXPECT_EQ(synced, (std::vector<std::string>{FileStagingArea::file_name(StagingId{1}),
                                              FileStagingArea::file_name(StagingId{2}), "staging"}));
  synced.clear();
  EXPECT_FALSE(is_refused([&] { area_->sync_all(); }));
  EXPECT_EQ(synced, std::vector<std::string>{"staging"});
}

TEST_F(StagingSync, SoAreTheNamesOfFilesWithoutContent) {
  int failures = 0, calls = 0;
  const SyncDecision decision([&](int descriptor) {
    if (path_of(descriptor) != path_) return 0;
    return ++calls <= failures ? EIO : 0;
  });
  FileStagingArea files(path_, 8);
  files.create(StagingId{1});
  failures = 2;
  EXPECT_TRUE(is_refused([&] { files.sync_all(); }));
  calls = 0;
  failures = 1;
  EXPECT_FALSE(is_refused([&] { files.sync_all(); }));
  EXPECT_EQ(calls, 2);
}

TEST_F(StagingSync, NoLaterSyncOfAllHidesTheFileThatCouldNotBeSynced) {
  make(1, large_);
  make(2, large_);
  area_->sync_directory();
  const auto fail_all = failing_once("/staging");
  const auto fail_one = failing_once("/" + FileStagingArea::file_name(StagingId{2}));
  const SyncDecision decision([&](int descriptor) {
    const int error = fail_all(descriptor);
    return error != 0 ? error : fail_one(descriptor);
  });
  EXPECT_TRUE(is_refused([&] { area_->sync_all(); }));
  EXPECT_FALSE(is_refused([&] { area_->sync_all(); })) << "it has been said, and what is lost is known";
  EXPECT_TRUE(area_->lost(StagingId{1}).written.empty());
  EXPECT_FALSE(area_->lost(StagingId{2}).written.empty());
  EXPECT_FALSE(sync_is_refused(1));
  EXPECT_TRUE(sync_is_refused(2));
}

// The log of small files makes the staging area when the first of its bytes are appended.
TEST_F(StagingSync, ASmallFileIsSyncedWithTheNamesOfItsSegmentAndOfTheStagingArea) {
  for (const std::string& name : {path_, directory_.path()}) {
    area_.reset();
    std::filesystem::remove_all(path_);
    area_ = std::make_unique<TieredStagingArea>(path_);
    make(1, "small");
    bool has_failed = false;
    int syncs = 0;
    const SyncDecision decision([&](int descriptor) {
      if (path_of(descriptor) != name) return 0;
      ++syncs;
      return std::exchange(has_failed, true) ? 0 : EIO;
    });
    EXPECT_TRUE(sync_is_refused(1)) << name;
    EXPECT_FALSE(sync_is_refused(1)) << name;
    EXPECT_EQ(syncs, 2) << name;
  }
}

TEST_F(StagingSync, ASyncOfNamesOrOfAllBringsSmallFilesToTheDiskOrIsRefused) {
  using Sync = void (TieredStagingArea::*)();
  std::uint64_t id = 0;
  for (const Sync sync : {Sync(&TieredStagingArea::sync_directory), Sync(&TieredStagingArea::sync_all)}) {
    make(++id, "small");
    const std::string segment = "/small-" + std::to_string(id);
    bool is_synced = false;
    const auto fail = failing_once(segment);
    const SyncDecision decision([&](int descriptor) {
      const int error = fail(descriptor);
      is_synced = is_synced || (error == 0 && path_of(descriptor).find("/small-") != std::string::npos);
      return error;
    });
    EXPECT_TRUE(is_refused([&] { (area_.get()->*sync)(); }));
    EXPECT_FALSE(is_synced);
    EXPECT_FALSE(is_refused([&] { (area_.get()->*sync)(); }));
    EXPECT_TRUE(is_synced);
  }
}

// The move is done as a whole or not at all: a file of its own that stayed behind would count more than later records.
TEST_F(StagingSync, AMoveToAFileOfItsOwnThatCannotBeSyncedIsUndone) {
  make(1, "synced");
  area_->sync(StagingId{1});
  for (const char* part : {"/1.new", "/staging"}) {
    const SyncDecision decision(failing_once(part));
    EXPECT_THROW(area_->write(StagingId{1}, 200'000, std::as_bytes(std::span("x", 1))), Error) << part;
    EXPECT_FALSE(std::filesystem::exists(path_ + "/1"));
    EXPECT_FALSE(std::filesystem::exists(path_ + "/1.new"));
    EXPECT_EQ(get(1), "synced");
  }
}

// Its log is not believed after that, and nothing is lost with it.
TEST(JournalSync, RowsThatCouldNotBeSyncedAreInTheDatabaseOnceABarrierSucceeds) {
  const support::TemporaryDirectory directory;
  const auto row = [](std::uint64_t node) {
    session::JournalBatch batch;
    batch.nodes = {support::sample_node(node)};
    return batch;
  };
  for (const char* part : {"/session.db-wal", "/session.db"}) {
    SqliteSessionJournal journal(directory.path());
    const std::size_t before = journal.load().nodes.size();
    journal.append(row(100 + before));
    bool has_failed = false;
    const SyncDecision decision([&](int descriptor) {
      if (has_failed || !path_of(descriptor).ends_with(part)) return 0;
      has_failed = true;
      return EIO;
    });
    EXPECT_THROW(journal.barrier(), Error);
    journal.append(row(200 + before));
    journal.barrier();
    EXPECT_TRUE(has_failed);
    EXPECT_EQ(journal.load().nodes.size(), before + 2);
    // What was in the log when the sync failed is not needed any more.
    const support::TemporaryDirectory copy;
    std::filesystem::copy_file(directory.path() + "/session.db", copy.path() + "/session.db");
    EXPECT_GE(SqliteSessionJournal(copy.path()).load().nodes.size(), before + 1);
  }
}

// The session's journal may have been on disk already while the session was being opened.
TEST(SessionDirectorySync, TheMarkOfAnOpeningIsOnDiskWithTheNextBarrier) {
  for (const bool is_synced_before : {false, true}) {
    const support::TemporaryDirectory top;
    std::filesystem::create_directory(top.path() + "/sessions");
    FileSessionDirectories directories(top.path() + "/sessions", {});
    const auto held = directories.create(session::SessionId::generate());
    session::JournalBatch batch;
    batch.nodes = {support::sample_node(5)};
    held->journal().append(batch);
    if (is_synced_before) held->journal().barrier();
    held->opened();
    held->journal().append(batch);
    std::atomic<bool> is_on_disk = false;
    const SyncDecision watch([&](int descriptor) {
      if (path_of(descriptor) == held->path()) is_on_disk = std::filesystem::exists(held->path() + "/opened");
      return 0;
    });
    held->journal().barrier();
    EXPECT_TRUE(is_on_disk) << is_synced_before;
  }
}

}  // namespace
}  // namespace escrow::storage
