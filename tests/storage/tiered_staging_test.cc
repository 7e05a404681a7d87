// Where TieredStagingArea keeps small files, when it moves them, and what a dead process leaves of them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "storage/staging/tiered_staging_area.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

using session::StagingId;

class TieredStaging : public testing::Test {
 protected:
  void put(StagingId id, std::uint64_t offset, std::string_view text) {
    area_->write(id, offset, std::as_bytes(std::span(text)));
  }
  std::string get(StagingId id) {
    std::string text(area_->usage(id).size_bytes, '?');
    text.resize(area_->read(id, 0, std::as_writable_bytes(std::span(text))));
    return text;
  }
  void make(std::uint64_t id, std::string_view text) {
    area_->create(StagingId{id});
    put(StagingId{id}, 0, text);
  }
  // As a process that was killed: what was not written behind is lost.
  void reopen() {
    area_.reset();
    area_ = std::make_unique<TieredStagingArea>(path_);
  }
  bool has_file(const std::string& name) const { return std::filesystem::exists(path_ + "/" + name); }

  support::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/staging";
  std::unique_ptr<TieredStagingArea> area_ = std::make_unique<TieredStagingArea>(path_);
};

TEST_F(TieredStaging, ASmallFileThatComesAndGoesTouchesNoDisk) {
  make(1, "temporary");
  area_->remove(StagingId{1});
  area_->write_behind();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(TieredStaging, SmallFilesShareOneFileAndAreThereAgain) {
  for (std::uint64_t id = 1; id <= 1000; ++id) make(id, "content of " + std::to_string(id));
  area_->write_behind();
  put(StagingId{7}, 0, "CONTENT");
  area_->write_behind();
  put(StagingId{8}, 0, "lost");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()), 1);
  reopen();
  EXPECT_EQ(area_->list().size(), 1000u);
  EXPECT_EQ(get(StagingId{7}), "CONTENT of 7");
  EXPECT_EQ(get(StagingId{8}), "content of 8");
  EXPECT_EQ(get(StagingId{1000}), "content of 1000");
}

TEST_F(TieredStaging, AFileThatGrowsMovesToItsOwnWithWhatItHeld) {
  make(1, "begin");
  area_->sync(StagingId{1});
  put(StagingId{1}, TieredStagingArea::kSmallBytes, "end");
  EXPECT_TRUE(has_file("1"));
  area_->write_behind();
  reopen();
  EXPECT_EQ(area_->list(), std::vector{StagingId{1}});
  const std::string content = get(StagingId{1});
  EXPECT_EQ(content.substr(0, 5), "begin");
  EXPECT_EQ(content.substr(TieredStagingArea::kSmallBytes), "end");
}

TEST_F(TieredStaging, AFileThatKeepsChangingMovesToItsOwn) {
  make(1, "0");
  for (int i = 1; i < 10; ++i) {
    area_->write_behind();
    put(StagingId{1}, static_cast<std::uint64_t>(i), std::to_string(i));
  }
  EXPECT_TRUE(has_file("1"));
  EXPECT_EQ(get(StagingId{1}), "0123456789");
}

TEST_F(TieredStaging, WhatNeedsTheFileSystemMovesToAFileOfItsOwn) {
  make(1, std::string(10000, 'x'));
  area_->punch_hole(StagingId{1}, 0, 4096);
  EXPECT_TRUE(has_file("1"));
  EXPECT_EQ(get(StagingId{1}), std::string(4096, '\0') + std::string(10000 - 4096, 'x'));
}

TEST_F(TieredStaging, ARecordThatWasCutShortLeavesTheOlderOne) {
  make(1, "older");
  area_->write_behind();
  put(StagingId{1}, 0, "newer");
  make(2, "unfinished");
  area_->write_behind();
  area_.reset();
  std::filesystem::resize_file(path_ + "/small-1", std::filesystem::file_size(path_ + "/small-1") - 40);
  reopen();
  EXPECT_EQ(area_->list(), std::vector{StagingId{1}});
  EXPECT_TRUE(get(StagingId{1}) == "older" || get(StagingId{1}) == "newer") << get(StagingId{1});
  // The log goes on behind it.
  make(3, "after");
  area_->write_behind();
  reopen();
  EXPECT_EQ(get(StagingId{3}), "after");
}

TEST_F(TieredStaging, AFlippedBitEndsTheLogThere) {
  make(1, "first");
  area_->write_behind();
  make(2, "second");
  area_->write_behind();
  area_.reset();
  {
    std::fstream log(path_ + "/small-1", std::ios::in | std::ios::out | std::ios::binary);
    log.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path_ + "/small-1") - 1));
    log.put('D');
  }
  reopen();
  EXPECT_EQ(area_->list(), std::vector{StagingId{1}});
}

TEST_F(TieredStaging, FilesOfWhichNothingIsLeftAreRemoved) {
  const std::string content(60000, 'x');
  for (std::uint64_t id = 1; id <= 1000; ++id) make(id, content);  // 60 MB: several segments
  area_->write_behind();
  EXPECT_TRUE(has_file("small-1"));
  EXPECT_TRUE(has_file("small-2"));
  for (std::uint64_t id = 1; id <= 1000; ++id) area_->remove(StagingId{id});
  area_->write_behind();
  EXPECT_FALSE(has_file("small-1")) << "with nothing new to write";
  make(1001, "one more");
  area_->write_behind();
  EXPECT_FALSE(has_file("small-2"));
  reopen();
  EXPECT_LT(area_->list().size(), 500u);
  EXPECT_EQ(get(StagingId{1001}), "one more");
}

// One file that stays kept a whole segment of the log, with everything that had been removed from it.
TEST_F(TieredStaging, TheDiskHoldsLittleMoreThanWhatCounts) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  const std::string text(50'000, 'x');
  for (const std::uint64_t waste : {std::uint64_t{0}, kMiB}) {  // 0: no limit
    std::filesystem::remove_all(path_);
    reopen();
    if (waste > 0) area_->limit_waste(waste);
    std::uint64_t id = 0, kept = 0;
    for (int round = 0; round < 20; ++round) {
      const std::uint64_t first = id + 1;
      for (int i = 0; i < 100; ++i) make(++id, text);
      area_->write_behind();
      for (std::uint64_t removed = first; removed < id; ++removed) area_->remove(StagingId{removed});
      ++kept;
      area_->write_behind();
    }
    area_->write_behind();
    const std::uint64_t counting = kept * text.size();
    EXPECT_LE(area_->held_bytes(), waste > 0 ? counting + 2 * waste : 4 * counting + 32 * kMiB);
    for (std::uint64_t round = 1; round <= kept; ++round) EXPECT_EQ(get(StagingId{round * 100}), text);
    reopen();
    for (std::uint64_t round = 1; round <= kept; ++round) EXPECT_EQ(get(StagingId{round * 100}), text);
  }
}

TEST_F(TieredStaging, AFileOfItsOwnCountsMoreThanItsRecord) {
  make(1, "record");
  area_->write_behind();
  put(StagingId{1}, 0, std::string(100000, 'f'));
  reopen();
  EXPECT_EQ(get(StagingId{1}), std::string(100000, 'f'));
}

}  // namespace
}  // namespace escrow::storage
