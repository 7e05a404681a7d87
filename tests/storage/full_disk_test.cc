// A full disk comes out as Error{no_space}, one sentence that names the file, and loses nothing: a tmpfs of 1 MiB.
// Needs the right to mount; without it the tests skip, and fail with REQUIRE_FUSE=1 as the mount tests do.
#include <gtest/gtest.h>

#include <sys/mount.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "session/base/error.h"
#include "storage/database/sqlite_session_catalog.h"
#include "storage/disk/durable_file.h"
#include "storage/staging/file_staging_area.h"
#include "storage/staging/sqlite_session_journal.h"
#include "tests/support/journal_rows.h"
#include "tests/support/sample_record.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;
using session::StagingId;

class FullDisk : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(disk_);
    if (::mount("tmpfs", disk_.c_str(), "tmpfs", 0, "size=1m") == 0) {
      mounted_ = true;
      return;
    }
    const char* required = std::getenv("REQUIRE_FUSE");
    if (required != nullptr && std::string(required) == "1") FAIL() << "cannot mount a tmpfs";
    GTEST_SKIP() << "cannot mount a tmpfs";
  }
  void TearDown() override {
    if (mounted_) ::umount2(disk_.c_str(), MNT_DETACH);
  }

  void fill() {
    std::ofstream filler(disk_ + "/filler", std::ios::binary | std::ios::app);
    const std::string block(4096, 'f');
    while (filler.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }
  void make_room() { fs::remove(disk_ + "/filler"); }

  // Repeats `action` until it fails; the failure must be a full disk, told in one sentence with the path.
  template <typename Action>
  static void expect_full(Action action) {
    for (int i = 0; i < 10'000; ++i) {
      try {
        action();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::no_space) << error.what();
        const std::string message = error.what();
        EXPECT_NE(message.find("/disk/"), std::string::npos) << message;
        EXPECT_NE(message.find("the disk is full"), std::string::npos) << message;
        return;
      }
    }
    FAIL() << "the disk never became full";
  }

  support::TemporaryDirectory root_;
  const std::string disk_ = root_.path() + "/disk";
  bool mounted_ = false;
};

TEST_F(FullDisk, AStagedWriteSaysSoAndWorksAgainWithRoom) {
  FileStagingArea staging(disk_ + "/staging");
  staging.create(StagingId{1});
  fill();
  const std::string bytes(1 << 16, 'x');
  const auto write = [&] { staging.write(StagingId{1}, 0, std::as_bytes(std::span(bytes))); };
  expect_full(write);
  expect_full([&] { staging.allocate(StagingId{1}, 0, 1 << 20, true); });
  make_room();
  EXPECT_NO_THROW(write());
  EXPECT_EQ(staging.usage(StagingId{1}).size_bytes, bytes.size());
}

TEST_F(FullDisk, AJournalKeepsItsBatchesAndGoesOnWithRoom) {
  std::uint64_t appended = 0;
  {
    SqliteSessionJournal journal(disk_);
    session::JournalBatch batch;
    const auto append = [&] {
      batch.nodes.clear();
      for (std::uint64_t i = 0; i < 100; ++i) batch.nodes.push_back(support::sample_node(2 + appended * 100 + i));
      journal.append(batch);
      ++appended;
    };
    append();
    journal.barrier();
    fill();
    expect_full(append);
    EXPECT_EQ(journal.load().nodes.size(), appended * 100);
    make_room();
    append();
    journal.barrier();
  }
  EXPECT_EQ(SqliteSessionJournal(disk_).load().nodes.size(), appended * 100);
}

TEST_F(FullDisk, AJournalThatCannotBeCreatedCanBeCreatedLater) {
  fill();
  SqliteSessionJournal journal(disk_);
  session::JournalBatch batch;
  batch.nodes = {support::sample_node(2)};
  expect_full([&] { journal.append(batch); });
  make_room();
  journal.append(batch);
  journal.barrier();
  EXPECT_EQ(journal.load().nodes.size(), 1u);
}

TEST_F(FullDisk, ACatalogKeepsItsRowsAndGoesOnWithRoom) {
  SqliteSessionCatalog catalog(disk_ + "/catalog.db");
  const auto id = session::SessionId::generate();
  catalog.insert(support::sample_record(id));
  fill();
  expect_full([&] { catalog.insert(support::sample_record(session::SessionId::generate())); });
  const std::size_t count = catalog.list().size();
  EXPECT_EQ(support::describe(*catalog.find(id)), support::describe(support::sample_record(id)));
  make_room();
  catalog.insert(support::sample_record(session::SessionId::generate()));
  EXPECT_EQ(SqliteSessionCatalog(disk_ + "/catalog.db").list().size(), count + 1);
}

TEST_F(FullDisk, AFileIsReplacedWholeOrNotAtAll) {
  const std::string path = disk_ + "/file";
  write_file_durably(path, "old", 0600);
  fill();
  expect_full([&] { write_file_durably(path, std::string(1 << 16, 'n'), 0600); });
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  EXPECT_EQ(content.str(), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(disk_), fs::directory_iterator()), 2);
  make_room();
  write_file_durably(path, "new", 0600);
  EXPECT_EQ(fs::file_size(path), 3u);
}

}  // namespace
}  // namespace escrow::storage
