// Copies of files: holes, room on the disk, bounds and the end of one that is not wanted any more.
#include "storage/disk/copy_tree.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "session/base/error.h"
#include "session/base/still_wanted.h"
#include "tests/support/loop_disk.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

using session::Errc;

constexpr off_t kMebibyte = 1 << 20;

class CopyTreeTest : public testing::Test {
 protected:
  CopyTreeTest() {
    std::filesystem::create_directory(from_);
    std::filesystem::create_directory(to_);
  }

  static UniqueFd directory(const std::string& path) {
    return UniqueFd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  void write(const std::string& name, off_t at, const std::string& bytes) const {
    const UniqueFd file(::open((from_ + '/' + name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    ASSERT_EQ(static_cast<ssize_t>(bytes.size()), ::pwrite(file.get(), bytes.data(), bytes.size(), at));
  }
  static std::string read(const std::string& path, off_t at, std::size_t size) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    std::string bytes(size, '?');
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::pread(file.get(), bytes.data(), size, at))));
    return bytes;
  }
  // The error's code; nullopt: there was none.
  std::optional<Errc> copy(const CopyOptions& options = {}) const { return copy_to(to_, options); }
  std::optional<Errc> copy_to(const std::string& to, const CopyOptions& options = {}) const {
    try {
      copy_tree(directory(from_).get(), directory(to).get(), options);
      return std::nullopt;
    } catch (const session::Error& error) {
      said_ = error.what();
      return error.code();
    }
  }

  const support::TemporaryDirectory directory_;
  const std::string from_ = directory_.path() + "/from", to_ = directory_.path() + "/to";
  mutable std::string said_;
};

TEST_F(CopyTreeTest, AHoleStaysAHole) {
  write("file", 0, "head");
  write("file", 1024 * kMebibyte, "middle");
  std::filesystem::resize_file(from_ + "/file", 2048 * kMebibyte);
  write("all-hole", 0, "");
  std::filesystem::resize_file(from_ + "/all-hole", 1024 * kMebibyte);
  // The holes are not counted.
  ASSERT_EQ(std::nullopt, copy({.most_bytes = static_cast<std::uint64_t>(kMebibyte)})) << said_;
  struct stat made {};
  ASSERT_EQ(0, ::stat((to_ + "/file").c_str(), &made));
  EXPECT_EQ(2048 * kMebibyte, made.st_size);
  EXPECT_LT(made.st_blocks * 512, kMebibyte);
  EXPECT_EQ("head", read(to_ + "/file", 0, 4));
  EXPECT_EQ("middle", read(to_ + "/file", 1024 * kMebibyte, 6));
  EXPECT_EQ(std::string(1, '\0'), read(to_ + "/file", 2048 * kMebibyte - 1, 2));
  ASSERT_EQ(0, ::stat((to_ + "/all-hole").c_str(), &made));
  EXPECT_EQ(1024 * kMebibyte, made.st_size);
  EXPECT_EQ(0, made.st_blocks);
}

TEST_F(CopyTreeTest, MoreThanTheBoundIsRefused) {
  write("one", 0, std::string(kMebibyte, 'x'));
  EXPECT_EQ(std::nullopt, copy({.most_bytes = static_cast<std::uint64_t>(kMebibyte)})) << said_;
  std::filesystem::remove(to_ + "/one");
  EXPECT_EQ(Errc::quota_exceeded, copy({.most_bytes = static_cast<std::uint64_t>(kMebibyte) - 1}));
}

TEST_F(CopyTreeTest, AFileThatIsNotAsLargeAsItSaysIsReadToItsEnd) {
  for (const std::string name : {"/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"}) {
    const UniqueFd from(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
    if (!from) continue;  // of a kernel without it
    copy_file(from.get(), directory(to_).get(), "copy");
    EXPECT_EQ(read(name, 0, 10'000), read(to_ + "/copy", 0, 10'000)) << name;
    std::filesystem::remove(to_ + "/copy");
  }
}

TEST_F(CopyTreeTest, ACopyEndsWhenItIsAskedTo) {
  for (const char* name : {"a", "b", "c"}) write(name, 0, "x");
  int asked = 0;
  const std::function<bool()> is_wanted = [&] { return ++asked != 3; };
  const session::WantedWhile wanted(is_wanted);
  EXPECT_EQ(Errc::unavailable, copy());
  EXPECT_EQ(3, asked);
  EXPECT_TRUE(said_.ends_with("was stopped: its caller waits for it no longer")) << said_;
}

TEST_F(CopyTreeTest, ALargeCopyLeavesOthersRoomOnTheDisk) {
  std::unique_ptr<support::LoopDisk> disk;
  ESCROW_NEEDS_LOOP_DISK(disk, "ext4");
  write("file", 0, std::string(20 * kMebibyte, 'x'));
  const auto left = [&] {
    struct statvfs about {};
    EXPECT_EQ(0, ::statvfs(disk->path().c_str(), &about));
    return std::pair(static_cast<off_t>(about.f_bavail * about.f_frsize),
                     static_cast<off_t>(about.f_blocks * about.f_frsize / 20));
  };
  const auto [free, kept] = left();
  const UniqueFd filler(::open((disk->path() + "/filler").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(0, ::posix_fallocate(filler.get(), 0, free - kept - 18 * kMebibyte));
  const std::string to = disk->path() + "/to";
  std::filesystem::create_directory(to);
  EXPECT_EQ(Errc::no_space, copy_to(to));
  EXPECT_NE(std::string::npos, said_.find("stay free for others")) << said_;
  EXPECT_GE(left().first, kept);
  std::filesystem::remove_all(to);
  std::filesystem::create_directory(to);
  ASSERT_EQ(0, ::ftruncate(filler.get(), free - kept - 24 * kMebibyte));
  EXPECT_EQ(std::nullopt, copy_to(to)) << said_;
}

}  // namespace
}  // namespace escrow::storage
