// An error of the machine that passes, as when no descriptor is left for a moment: nothing is concluded from it.
#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "session/base/error.h"
#include "storage/database/sqlite_session_catalog.h"
#include "storage/disk/file_lookup.h"
#include "storage/git/git_directory.h"
#include "storage/staging/file_session_directories.h"
#include "storage/staging/file_staging_area.h"
#include "storage/staging/tiered_staging_area.h"
#include "tests/storage/git_test_repository.h"
#include "tests/support/sample_record.h"
#include "tests/support/system_calls.h"
#include "tests/support/temporary_directory.h"

// The next call of this thread fails.
static thread_local bool is_listing_to_fail = false;

// In front of the C library's.
extern "C" dirent* watched_readdir(DIR* directory) __asm__("readdir64");
extern "C" dirent* watched_readdir(DIR* directory) {
  static const auto next = reinterpret_cast<dirent* (*)(DIR*)>(::dlsym(RTLD_NEXT, "readdir64"));
  if (!std::exchange(is_listing_to_fail, false)) return next(directory);
  errno = EIO;
  return nullptr;
}

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;
using session::SessionRecord;
using support::SystemCall;

// SQLite itself would open it for reading, and escrowd would keep a connection that cannot write.
TEST(PassingErrors, ADatabaseThatCouldNotBeOpenedForWritingIsNotOpenedForReading) {
  const support::TemporaryDirectory directory;
  const std::string path = directory.path() + "/catalog.db";
  const SessionRecord first = support::sample_record(session::SessionId::generate());
  SqliteSessionCatalog(path).insert(first);
  for (const auto& [error, code] : {std::pair(EMFILE, Errc::input_output), std::pair(EDQUOT, Errc::quota_exceeded)}) {
    for (const std::string& file : {path, path + "-wal", path + "-shm"}) {
      if (file == path + "-shm") std::ofstream{file};
      bool is_struck = false;
      const support::WatchedSystemCalls once([&, error = error](const SystemCall& call) {
        if (is_struck || call.name != "open" || call.path != file) return 0;
        is_struck = true;
        return error;
      });
      const Errc expected = file == path + "-shm" ? Errc::input_output : code;
      EXPECT_EQ(error_of([&] { SqliteSessionCatalog{path}; }).code(), expected) << file << " " << error;
      EXPECT_TRUE(is_struck) << file;
    }
  }
  EXPECT_TRUE(SqliteSessionCatalog(path).find(first.id));
}

TEST(PassingErrors, WhoMayOnlyReadADatabaseReadsIt) {
  const support::TemporaryDirectory directory;
  const std::string path = directory.path() + "/catalog.db";
  const SessionRecord first = support::sample_record(session::SessionId::generate());
  SqliteSessionCatalog(path).insert(first);
  for (const std::string& name : names_in(directory.path()))
    ASSERT_EQ(::chmod((directory.path() + "/" + name).c_str(), 0444), 0);
  ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
  // Root may write whatever the mode is.
  constexpr uid_t kNobody = 65534;
  const uid_t self = ::geteuid();
  if (self == 0) {
    ASSERT_EQ(::seteuid(kNobody), 0);
  }
  EXPECT_EQ(error_of([&] {
              SqliteSessionCatalog catalog(path);
              EXPECT_TRUE(catalog.find(first.id));
              catalog.insert(support::sample_record(session::SessionId::generate()));
            }).code(),
            Errc::access_denied);
  ASSERT_EQ(::seteuid(self), 0);
}

// A symbolic link to itself fails every look (ELOOP).
TEST(PassingErrors, WhatCannotBeLookedAtIsNeitherMissingNorDamaged) {
  const GitTestRepository repository;
  const std::string& git_directory = repository.pool->git_directory();
  repository.references->check_target("main");
  fs::create_symlink("worktrees", git_directory + "/worktrees");
  EXPECT_EQ(error_of([&] { repository.references->check_target("main"); }).code(), Errc::input_output);
  const std::string config = git_directory + "/looped";
  fs::create_symlink("looped", config);
  EXPECT_EQ(error_of([&] { open_config(config); }).code(), Errc::input_output);
}

TEST(PassingErrors, AListingThatFailsIsNotTakenForItsEnd) {
  const support::TemporaryDirectory directory;
  const auto fails = [](const std::function<void()>& work) {
    is_listing_to_fail = true;
    const Errc code = error_of(work).code();
    EXPECT_FALSE(is_listing_to_fail) << "nothing was listed";
    return code;
  };
  {
    TieredStagingArea staging(directory.path(), 8);
    staging.create(session::StagingId{1});
    staging.sync_all();
  }
  EXPECT_EQ(fails([&] { TieredStagingArea(directory.path(), 8); }), Errc::input_output);
  EXPECT_EQ(fails([&] { FileStagingArea(directory.path(), 8).list(); }), Errc::input_output);
  const FileSessionDirectories sessions(directory.path(), nullptr);
  EXPECT_EQ(fails([&] { sessions.list(); }), Errc::input_output);
  EXPECT_EQ(TieredStagingArea(directory.path(), 8).list().size(), 1u);
}

}  // namespace
}  // namespace escrow::storage
