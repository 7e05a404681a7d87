#include "storage/staging/file_read_log.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/loop_disk.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

class FileReadLogTest : public testing::Test {
 protected:
  // As the next process finds it.
  session::ReadLog::Loaded found() { return FileReadLog(directory_.path()).load(); }
  // As if what was not synced had been written before the machine was started, or its disk attached, anew.
  void lose_power() {
    std::fstream file(directory_.path() + "/reads", std::ios::in | std::ios::out | std::ios::binary);
    char first = 0;
    file.seekg(8);
    file.get(first);
    if (first % 2 == 0) return;  // it does not name a time
    file.seekp(8);
    file.put(static_cast<char>(first ^ 2));
  }

  support::TemporaryDirectory directory_;
};

TEST_F(FileReadLogTest, AKillLosesNothing) {
  {
    FileReadLog log(directory_.path());
    log.create();
    log.append("one");
  }
  {
    FileReadLog log(directory_.path());
    EXPECT_EQ(log.load().events, "one");
    log.append("two");
  }
  EXPECT_EQ(found().events, "onetwo");
  EXPECT_TRUE(found().is_complete);
}

TEST_F(FileReadLogTest, AfterAPowerLossItIsNotCompleteAndStaysSo) {
  FileReadLog log(directory_.path());
  log.create();
  log.append("one");
  lose_power();
  EXPECT_FALSE(FileReadLog::peek(directory_.path())->is_complete);
  EXPECT_FALSE(found().is_complete);
  EXPECT_FALSE(found().is_complete);
}

TEST_F(FileReadLogTest, WhatWasClosedOutlivesAPowerLossAndWhatCameAfterwardsDoesNot) {
  FileReadLog log(directory_.path());
  log.create();
  log.append("one");
  log.close();
  lose_power();
  EXPECT_TRUE(found().is_complete);
  log.append("two");
  EXPECT_TRUE(found().is_complete);
  lose_power();
  EXPECT_FALSE(found().is_complete);
}

TEST_F(FileReadLogTest, AfterItsDiskWasMountedAgainItIsNotCompleteUnlessItWasClosed) {
  std::unique_ptr<support::LoopDisk> disk;
  ESCROW_NEEDS_LOOP_DISK(disk, "ext4");
  const auto is_complete = [&] { return FileReadLog::peek(disk->path())->is_complete; };
  {
    FileReadLog log(disk->path());
    log.create();
    log.append("one");
  }
  EXPECT_TRUE(is_complete());
  {
    FileReadLog log(disk->path());
    log.load();
    log.close();
  }
  disk->unmount_and_mount();
  EXPECT_TRUE(is_complete());
  {
    FileReadLog log(disk->path());
    log.load();
    log.append("two");
  }
  EXPECT_TRUE(is_complete());
  disk->unmount_and_mount();
  EXPECT_FALSE(is_complete());
}

TEST_F(FileReadLogTest, WhatWasGivenUpStaysSo) {
  FileReadLog log(directory_.path());
  log.create();
  log.give_up();
  log.append("one");
  log.close();
  EXPECT_FALSE(found().is_complete);
}

TEST_F(FileReadLogTest, ASessionWithoutOneHasReadWhatNobodyKnows) {
  EXPECT_FALSE(FileReadLog::peek(directory_.path()).has_value());
  EXPECT_FALSE(found().is_complete);
  EXPECT_FALSE(found().is_complete);
}

}  // namespace
}  // namespace escrow::storage
