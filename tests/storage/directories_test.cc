// Session directories: their locks between holders and processes, and their removal.
#include "storage/staging/file_session_directories.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "session/base/error.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/journal_rows.h"
#include "tests/support/seed.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;
using session::SessionId;

class SessionDirectoriesTest : public testing::Test {
 protected:
  FileSessionDirectories make() {
    return FileSessionDirectories(sessions_, [this](const std::string& objects_directory) {
      objects_directory_ = objects_directory;
      return std::make_unique<support::FakeQuarantine>(store_);
    });
  }

  support::TemporaryDirectory root_;
  const std::string sessions_ = root_.path() + "/sessions";
  const bool made_ = fs::create_directory(sessions_);
  support::FakeObjectStore store_;
  std::string objects_directory_;
  const SessionId id_ = SessionId::generate();
  FileSessionDirectories directories_ = make();
};

session::JournalBatch one_row() {
  session::JournalBatch batch;
  batch.nodes = {support::sample_node(5)};
  return batch;
}

TEST_F(SessionDirectoriesTest, AFreshDirectoryHoldsNothingButItsLockAndItsMark) {
  const auto held = directories_.create(id_);
  EXPECT_EQ(held->path(), directories_.path_of(id_));
  EXPECT_EQ(std::distance(fs::directory_iterator(held->path()), fs::directory_iterator()), 2);
  EXPECT_EQ(directories_.list(), std::vector{id_});
  struct stat status;
  ASSERT_EQ(::stat(held->path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST_F(SessionDirectoriesTest, WhatWasStagedGoesAndTheLockAndTheRecordOfWhatWasPublishedStay) {
  auto held = directories_.create(id_);
  held->journal().append(one_row());
  held->journal().barrier();
  held->staging().create(session::StagingId{1});
  fs::create_directories(held->path() + "/objects/borrowed/pack");
  std::ofstream(held->path() + "/objects/published") << "root pack\n";
  std::ofstream(held->path() + "/objects/incoming.pack") << "bytes";
  EXPECT_TRUE(held->drop_staged());
  EXPECT_FALSE(held->drop_staged()) << "there is nothing left to drop";
  std::vector<std::string> left;
  for (const auto& entry : fs::recursive_directory_iterator(held->path())) left.push_back(entry.path().filename());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{"lock", "objects", "published"}));
  EXPECT_TRUE(directories_.is_held(id_));
  held.reset();
  EXPECT_FALSE(directories_.try_open(id_)->drop_staged()) << "looking at it makes nothing";
}

TEST_F(SessionDirectoriesTest, AHeldDirectoryIsHeldForEverybodyUntilItsHolderGoes) {
  auto held = directories_.create(id_);
  FileSessionDirectories others = make();
  EXPECT_TRUE(directories_.is_held(id_));
  EXPECT_TRUE(others.is_held(id_));
  EXPECT_EQ(directories_.try_open(id_), nullptr);
  EXPECT_EQ(others.try_open(id_), nullptr);
  held.reset();
  EXPECT_FALSE(others.is_held(id_));
  held = others.try_open(id_);
  EXPECT_NE(held, nullptr);
  EXPECT_EQ(directories_.try_open(id_), nullptr);
}

TEST_F(SessionDirectoriesTest, TheLockGoesWithAProcessThatIsKilled) {
  { directories_.create(id_); }
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto held = make().try_open(id_);
    const char byte = held ? 'y' : 'n';
    if (::write(ready[1], &byte, 1) == 1) ::pause();
    ::_exit(1);
  }
  char byte = '?';
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  EXPECT_TRUE(directories_.is_held(id_));
  EXPECT_EQ(directories_.try_open(id_), nullptr);
  ::kill(child, SIGKILL);
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED), 0);
  EXPECT_FALSE(directories_.is_held(id_));
  EXPECT_NE(directories_.try_open(id_), nullptr);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(SessionDirectoriesTest, WhatWasStagedIsThereForTheNextHolder) {
  {
    const auto held = directories_.create(id_);
    held->staging().create(session::StagingId{9});
    held->staging().write(session::StagingId{9}, 0, std::as_bytes(std::span(std::string_view("bytes"))));
    held->staging().write_behind();
    held->journal().append(one_row());
  }
  const auto held = directories_.try_open(id_);
  EXPECT_EQ(held->staging().list(), std::vector{session::StagingId{9}});
  ASSERT_EQ(held->journal().load().nodes.size(), 1u);
  EXPECT_EQ(support::describe(held->journal().load().nodes[0]), support::describe(one_row().nodes[0]));
}

TEST_F(SessionDirectoriesTest, TheQuarantineIsMadeOnceWhenItIsNeeded) {
  const auto held = directories_.create(id_);
  EXPECT_EQ(objects_directory_, "");
  EXPECT_EQ(&held->quarantine(), &held->quarantine());
  EXPECT_EQ(objects_directory_, held->path() + "/objects");
}

TEST_F(SessionDirectoriesTest, RemovalLeavesNothingAndLaterUseIsHarmless) {
  auto held = directories_.create(id_);
  held->staging().create(session::StagingId{9});
  held->journal().append(one_row());
  held->journal().barrier();
  fs::create_directories(held->path() + "/objects/ab");
  std::ofstream(held->path() + "/objects/ab/cdef") << "object";
  held->remove();
  EXPECT_TRUE(fs::is_empty(sessions_));
  EXPECT_NO_THROW(held->journal().append(one_row()));
  EXPECT_NO_THROW(held->journal().barrier());
  EXPECT_NO_THROW(held->remove());
  held.reset();
  EXPECT_TRUE(fs::is_empty(sessions_));
}

// A mount point cannot be removed, as a file with chattr +i cannot.
TEST_F(SessionDirectoriesTest, WhatCannotBeRemovedIsNamedAndTheRestGoes) {
  auto held = directories_.create(id_);
  const std::string stuck = held->path() + "/objects/stuck";
  fs::create_directories(stuck);
  fs::create_directories(held->path() + "/staging/deep/er");
  std::ofstream(held->path() + "/staging/deep/er/file") << "x";
  if (::mount("tmpfs", stuck.c_str(), "tmpfs", 0, "size=1m") != 0) {
    const char* required = std::getenv("REQUIRE_FUSE");
    if (required != nullptr && std::string(required) == "1") FAIL() << "cannot mount a tmpfs";
    GTEST_SKIP() << "cannot mount a tmpfs";
  }
  const auto expect_named = [&](const std::function<void()>& removal) {
    try {
      removal();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(stuck + ": Device or resource busy"), std::string::npos) << error.what();
    }
  };
  expect_named([&] { held->drop_staged(); });
  expect_named([&] { held->remove(); });
  EXPECT_FALSE(fs::exists(held->path() + "/staging"));
  EXPECT_TRUE(directories_.is_held(id_));
  ::umount2(stuck.c_str(), MNT_DETACH);
  held->remove();
  EXPECT_FALSE(fs::exists(directories_.path_of(id_)));
}

TEST_F(SessionDirectoriesTest, AMissingSessionIsNamed) {
  EXPECT_FALSE(directories_.is_held(id_));
  try {
    directories_.try_open(id_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::no_session);
    EXPECT_NE(std::string(error.what()).find(id_.text()), std::string::npos);
  }
}

TEST_F(SessionDirectoriesTest, AnIdIsCreatedOnce) {
  const auto held = directories_.create(id_);
  EXPECT_THROW(directories_.create(id_), Error);
}

// As recoveries in other processes do with a directory that nobody has recorded yet.
TEST_F(SessionDirectoriesTest, AFreshDirectoryIsNeverTakenFromItsHolder) {
  std::atomic<bool> done = false;
  std::atomic<int> removed = 0;
  std::vector<std::thread> recoveries;
  for (int i = 0; i < 3; ++i) {
    recoveries.emplace_back([&] {
      FileSessionDirectories mine = make();
      while (!done) {
        for (const SessionId& id : mine.list()) {
          try {
            if (const auto held = mine.try_open(id)) {
              held->remove();
              ++removed;
            }
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), Errc::no_session) << error.what();
          }
        }
      }
    });
  }
  FileSessionDirectories mine = make();
  for (std::uint64_t i = 0; i < support::gate_or_campaign(150, 600) && !HasFailure(); ++i) {
    const auto held = mine.create(SessionId::generate());
    std::this_thread::yield();
    EXPECT_TRUE(fs::exists(held->path() + "/lock")) << "session " << i << ", " << removed << " were removed";
    held->remove();
  }
  done = true;
  for (std::thread& recovery : recoveries) recovery.join();
}

TEST_F(SessionDirectoriesTest, OtherNamesAreNotListed) {
  fs::create_directory(sessions_ + "/not-a-session");
  std::ofstream(sessions_ + "/README") << "x";
  EXPECT_TRUE(directories_.list().empty());
}

TEST_F(SessionDirectoriesTest, OneThatIsSetAsideComesBackWithAllItHolds) {
  {
    const auto held = directories_.create(id_);
    held->journal().append(one_row());
    EXPECT_FALSE(held->has_work()) << "it was not opened";
    held->opened();
    EXPECT_TRUE(held->has_work());
    EXPECT_EQ(held->set_aside(), root_.path() + "/orphans/" + id_.text());
  }
  EXPECT_TRUE(directories_.list().empty());
  EXPECT_EQ(directories_.list_aside(), std::vector{id_});
  EXPECT_TRUE(directories_.is_aside(id_));
  EXPECT_FALSE(directories_.exists(id_));
  directories_.bring_back(id_);
  EXPECT_TRUE(directories_.list_aside().empty());
  const auto held = directories_.try_open(id_);
  ASSERT_NE(held, nullptr);
  EXPECT_TRUE(held->has_work());
  EXPECT_EQ(held->journal().load().nodes.size(), 1u);
}

// gc keeps the objects that the session may have found in the repository since that time.
TEST_F(SessionDirectoriesTest, TheMarkLeavesTheTimeAtWhichTheOpeningBegan) {
  const auto held = directories_.create(id_);
  constexpr std::int64_t kBegun_s = 1'000'000'000;
  const struct timespec times[2] = {{kBegun_s, 0}, {kBegun_s, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (held->path() + "/lock").c_str(), times, 0), 0);
  held->opened();
  held->set_aside();
  EXPECT_EQ(directories_.opened_aside_s(id_), kBegun_s);
}

TEST_F(SessionDirectoriesTest, NothingIsReplacedByOneThatComesBack) {
  const auto make_opened = [&] {
    auto held = directories_.create(id_);
    held->opened();
    return held;
  };
  make_opened()->set_aside();
  const auto held = make_opened();
  EXPECT_THROW(directories_.bring_back(id_), Error);
  EXPECT_THROW(held->set_aside(), Error);
  EXPECT_TRUE(directories_.is_aside(id_));
  EXPECT_TRUE(directories_.exists(id_));
}

// Sessions of earlier versions have no mark, and a power cut may take it.
TEST_F(SessionDirectoriesTest, WhereNoMarkIsLeftFilesDecide) {
  const auto held = directories_.create(id_);
  held->opened();
  EXPECT_TRUE(held->has_work());
  fs::remove(held->path() + "/opened");
  EXPECT_FALSE(held->has_work());
  held->journal().append(one_row());
  EXPECT_TRUE(held->has_work());
  held->opened();
  EXPECT_TRUE(fs::exists(held->path() + "/opened"));
}

TEST_F(SessionDirectoriesTest, WhereTheMarkCannotBeMadeFilesDecide) {
  const auto held = directories_.create(id_);
  held->journal().append(one_row());
  fs::create_directory(held->path() + "/opened");  // nothing is renamed over it
  EXPECT_THROW(held->opened(), Error);
  fs::remove(held->path() + "/opened");
  EXPECT_TRUE(held->has_work());
}

TEST_F(SessionDirectoriesTest, OthersMaySetTheirsAsideBesideIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can work for another user";
  ASSERT_EQ(::chown(root_.path().c_str(), 12345, 12345), 0);
  directories_.create(id_)->set_aside();
  struct stat status {};
  ASSERT_EQ(::stat((root_.path() + "/orphans").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 12345u) << "the owner of the repository, for whom root has done it";
  EXPECT_EQ(status.st_mode & 0777, 0755u);
}

// A member of a shared repository has put it there.
TEST_F(SessionDirectoriesTest, NoLinkIsFollowedToADirectoryOrALock) {
  const std::string outside = root_.path() + "/outside";
  fs::create_directory(outside);
  fs::create_directory_symlink(outside, directories_.path_of(id_));
  EXPECT_THROW(directories_.try_open(id_), Error);
  EXPECT_THROW(directories_.is_held(id_), Error);
  EXPECT_TRUE(fs::is_empty(outside));
  fs::remove(directories_.path_of(id_));
  fs::create_directory(directories_.path_of(id_));
  fs::create_symlink(outside + "/made", directories_.path_of(id_) + "/lock");
  EXPECT_THROW(directories_.try_open(id_), Error);
  EXPECT_TRUE(fs::is_empty(outside));
  fs::create_directory_symlink(outside, root_.path() + "/orphans");
  const auto held = directories_.create(SessionId::generate());
  held->opened();
  EXPECT_THROW(held->set_aside(), Error);
  EXPECT_TRUE(fs::is_empty(outside));
}

}  // namespace
}  // namespace escrow::storage
