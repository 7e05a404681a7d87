// What every StagingArea does: the fake in memory, the real one with many and with few descriptors.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "session/base/error.h"
#include "storage/staging/file_staging_area.h"
#include "storage/staging/tiered_staging_area.h"
#include "tests/support/fake_staging.h"
#include "tests/support/temporary_directory.h"

namespace escrow {
namespace {

using session::SeekTarget;
using session::StagingId;

struct StagingImplementation {
  const char* name;
  std::unique_ptr<session::StagingArea> (*make)(const std::string& directory);
};

const StagingImplementation kStagingAreas[] = {
    {"Fake",
     [](const std::string&) -> std::unique_ptr<session::StagingArea> {
       return std::make_unique<support::FakeStaging>();
     }},
    {"File",
     [](const std::string& directory) -> std::unique_ptr<session::StagingArea> {
       return std::make_unique<storage::FileStagingArea>(directory);
     }},
    {"FileWithFewDescriptors",
     [](const std::string& directory) -> std::unique_ptr<session::StagingArea> {
       return std::make_unique<storage::FileStagingArea>(directory, 16);
     }},
    {"Tiered",
     [](const std::string& directory) -> std::unique_ptr<session::StagingArea> {
       return std::make_unique<storage::TieredStagingArea>(directory);
     }},
};

class StagingContract : public testing::TestWithParam<StagingImplementation> {
 protected:
  void put(StagingId id, std::uint64_t offset, std::string_view text) {
    staging().write(id, offset, std::as_bytes(std::span(text)));
  }
  std::string get(StagingId id, std::uint64_t offset, std::size_t length) {
    std::string text(length, '?');
    text.resize(staging().read(id, offset, std::as_writable_bytes(std::span(text))));
    return text;
  }
  session::StagingArea& staging() { return *staging_; }

 private:
  support::TemporaryDirectory directory_;
  std::unique_ptr<session::StagingArea> staging_ = GetParam().make(directory_.path() + "/staging");
};

TEST_P(StagingContract, ANewFileIsEmptyAndListed) {
  staging().create(StagingId{7});
  EXPECT_EQ(staging().usage(StagingId{7}).size_bytes, 0u);
  EXPECT_EQ(staging().list(), std::vector{StagingId{7}});
}

TEST_P(StagingContract, NothingIsListedBeforeTheFirstFile) {
  EXPECT_TRUE(staging().list().empty());
  EXPECT_NO_THROW(staging().sync_directory());
  EXPECT_NO_THROW(staging().sync_all());
  EXPECT_NO_THROW(staging().remove(StagingId{3}));
}

TEST_P(StagingContract, WhatWasWrittenIsReadAndReadsStopAtTheEnd) {
  staging().create(StagingId{1});
  put(StagingId{1}, 0, "hello world");
  put(StagingId{1}, 6, "there");
  EXPECT_EQ(get(StagingId{1}, 0, 100), "hello there");
  EXPECT_EQ(get(StagingId{1}, 6, 3), "the");
  EXPECT_EQ(get(StagingId{1}, 11, 10), "");
  EXPECT_EQ(get(StagingId{1}, 1 << 20, 10), "");
}

TEST_P(StagingContract, AGapReadsAsZeroesAndTakesNoSpace) {
  staging().create(StagingId{1});
  put(StagingId{1}, 1 << 20, "x");
  EXPECT_EQ(staging().usage(StagingId{1}).size_bytes, (1u << 20) + 1);
  EXPECT_LE(staging().usage(StagingId{1}).blocks, 64u);
  EXPECT_EQ(get(StagingId{1}, 1000, 5), std::string(5, '\0'));
}

TEST_P(StagingContract, TruncationCutsAndGrowsWithZeroes) {
  staging().create(StagingId{1});
  put(StagingId{1}, 0, "abcdef");
  staging().truncate(StagingId{1}, 3);
  EXPECT_EQ(get(StagingId{1}, 0, 10), "abc");
  staging().truncate(StagingId{1}, 6);
  EXPECT_EQ(get(StagingId{1}, 0, 10), std::string("abc\0\0\0", 6));
}

TEST_P(StagingContract, HolesAndZeroRangesReadAsZeroes) {
  staging().create(StagingId{1});
  put(StagingId{1}, 0, std::string(20000, 'x'));
  staging().punch_hole(StagingId{1}, 4096, 4096);
  staging().zero_range(StagingId{1}, 100, 10, false);
  EXPECT_EQ(get(StagingId{1}, 4095, 3), std::string("x\0\0", 3));
  EXPECT_EQ(get(StagingId{1}, 8191, 2), std::string("\0x", 2));
  EXPECT_EQ(get(StagingId{1}, 99, 12), 'x' + std::string(10, '\0') + 'x');
  EXPECT_EQ(staging().usage(StagingId{1}).size_bytes, 20000u);
  staging().zero_range(StagingId{1}, 19999, 10, false);
  EXPECT_EQ(staging().usage(StagingId{1}).size_bytes, 20000u);
  staging().zero_range(StagingId{1}, 19999, 10, true);
  EXPECT_EQ(staging().usage(StagingId{1}).size_bytes, 20009u);
  EXPECT_EQ(get(StagingId{1}, 19998, 20), 'x' + std::string(10, '\0'));
}

TEST_P(StagingContract, AllocationGrowsOnlyWhenAskedTo) {
  staging().create(StagingId{1});
  staging().allocate(StagingId{1}, 0, 10000, false);
  EXPECT_EQ(staging().usage(StagingId{1}).size_bytes, 0u);
  EXPECT_GE(staging().usage(StagingId{1}).blocks, 20u);
  staging().allocate(StagingId{1}, 0, 10000, true);
  EXPECT_EQ(staging().usage(StagingId{1}).size_bytes, 10000u);
  EXPECT_EQ(get(StagingId{1}, 9998, 5), std::string(2, '\0'));
}

TEST_P(StagingContract, DataAndHolesAreFound) {
  staging().create(StagingId{1});
  put(StagingId{1}, 65536, "data");
  staging().truncate(StagingId{1}, 1 << 18);
  staging().sync(StagingId{1});
  EXPECT_EQ(staging().seek(StagingId{1}, 0, SeekTarget::data), 65536u);
  EXPECT_EQ(staging().seek(StagingId{1}, 10, SeekTarget::hole), 10u);
  const auto hole = staging().seek(StagingId{1}, 65536, SeekTarget::hole);
  ASSERT_TRUE(hole);
  EXPECT_GT(*hole, 65536u);
  EXPECT_LE(*hole, 1u << 18);
  EXPECT_EQ(staging().seek(StagingId{1}, 1 << 18, SeekTarget::hole), std::nullopt);
  EXPECT_EQ(staging().seek(StagingId{1}, 131072, SeekTarget::data), std::nullopt);
}

TEST_P(StagingContract, RemovalIsIdempotentAndAMissingFileIsAnInputOutputError) {
  staging().create(StagingId{1});
  put(StagingId{1}, 0, "x");
  staging().remove(StagingId{1});
  staging().remove(StagingId{1});
  EXPECT_TRUE(staging().list().empty());
  try {
    get(StagingId{1}, 0, 1);
    FAIL();
  } catch (const session::Error& error) {
    EXPECT_EQ(error.code(), session::Errc::input_output);
  }
}

TEST_P(StagingContract, AnIdIsNotGivenOutTwice) {
  staging().create(StagingId{1});
  EXPECT_THROW(staging().create(StagingId{1}), session::Error);
}

TEST_P(StagingContract, ManyFilesKeepTheirOwnBytes) {
  for (std::uint64_t id = 1; id <= 600; ++id) {
    staging().create(StagingId{id});
    put(StagingId{id}, 0, "file " + std::to_string(id));
  }
  for (std::uint64_t id = 600; id >= 1; --id)
    EXPECT_EQ(get(StagingId{id}, 0, 100), "file " + std::to_string(id));
  EXPECT_EQ(staging().list().size(), 600u);
  EXPECT_TRUE(std::ranges::is_sorted(staging().list()));
}

TEST_P(StagingContract, FreeSpaceIsPlausible) {
  const auto space = staging().free_space();
  EXPECT_GT(space.block_size, 0u);
  EXPECT_GE(space.blocks, space.blocks_free);
  EXPECT_GE(space.blocks_free, space.blocks_available);
}

INSTANTIATE_TEST_SUITE_P(, StagingContract, testing::ValuesIn(kStagingAreas),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

// As the kernel opens it for a process, where a mount passes files through.
TEST(FileStaging, WritersAreSeenAsLongAsTheyHaveTheFileOpenOrMapped) {
  const support::TemporaryDirectory directory;
  storage::FileStagingArea staging(directory.path());
  staging.create(StagingId{1});
  staging.write(StagingId{1}, 0, std::as_bytes(std::span("hello", 5)));
  EXPECT_FALSE(staging.has_writers(StagingId{1})) << "the area itself is none";
  const auto raw = staging.raw(StagingId{1});
  ASSERT_NE(raw, nullptr);
  EXPECT_FALSE(staging.has_writers(StagingId{1})) << "nor is who only names or reads the file";
  const std::string path = "/proc/self/fd/" + std::to_string(raw->descriptor());
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_TRUE(staging.has_writers(StagingId{1}));
  void* const memory = mmap(nullptr, 5, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  EXPECT_TRUE(staging.has_writers(StagingId{1})) << "what is mapped can be made writable";
  munmap(memory, 5);
  EXPECT_FALSE(staging.has_writers(StagingId{1}));
}

}  // namespace
}  // namespace escrow
