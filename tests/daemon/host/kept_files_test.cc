// The files of a revision as they are written for an entry of a mount table: holes, room on the disk, bounds, a stop.
#include "daemon/host/kept_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include "session/base/error.h"
#include "session/base/still_wanted.h"
#include "storage/disk/unique_fd.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/loop_disk.h"
#include "tests/support/temporary_directory.h"

namespace escrow::daemon {
namespace {

using session::Errc;

constexpr std::size_t kMiB = std::size_t{1} << 20;

class KeptFilesOfARevision : public testing::Test {
 protected:
  std::optional<Errc> put(const support::Files& files, storage::CopyBudget& budget, const std::string& to) {
    std::filesystem::create_directory(to);
    const storage::UniqueFd directory(::open(to.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    try {
      KeptFiles(directory.get(), options_).put_tree(objects_, objects_.put_files(files), 1'600'000'000, budget);
      return std::nullopt;
    } catch (const session::Error& error) {
      said_ = error.what();
      return error.code();
    }
  }
  static std::string content(const std::string& path) {
    std::ostringstream bytes;
    bytes << std::ifstream(path, std::ios::binary).rdbuf();
    return bytes.str();
  }

  const support::TemporaryDirectory directory_;
  const std::string to_ = directory_.path() + "/to";
  const session::SessionOptions options_{};
  support::FakeObjectStore objects_;
  std::string said_;
};

TEST_F(KeptFilesOfARevision, RunsOfZerosAreHolesAndCountForNothing) {
  const support::Files files{{"dir/image", "head" + std::string(40 * kMiB, '\0') + "tail"},
                             {"empty", ""},
                             {"zeros", std::string(10 * kMiB, '\0')}};
  storage::CopyBudget budget(kMiB);
  ASSERT_EQ(put(files, budget, to_), std::nullopt) << said_;
  for (const auto& [path, bytes] : files) {
    struct stat made {};
    ASSERT_EQ(0, ::stat((to_ + '/' + path).c_str(), &made)) << path;
    EXPECT_LT(static_cast<std::size_t>(made.st_blocks) * 512, kMiB) << path;
    EXPECT_TRUE(content(to_ + '/' + path) == bytes) << path;
  }
}

TEST_F(KeptFilesOfARevision, MoreThanTheBoundIsRefused) {
  storage::CopyBudget budget(kMiB);
  EXPECT_EQ(put({{"a", std::string(kMiB, 'a')}, {"b", "b"}}, budget, to_), Errc::quota_exceeded);
}

TEST_F(KeptFilesOfARevision, WritingEndsWhenItIsAskedTo) {
  int asked = 0;
  const std::function<bool()> is_wanted = [&] { return ++asked != 4; };
  const session::WantedWhile wanted(is_wanted);
  storage::CopyBudget budget(kMiB * 100);
  EXPECT_EQ(put({{"a", std::string(20 * kMiB, 'a')}}, budget, to_), Errc::unavailable);
  EXPECT_EQ(asked, 4) << "once for the file, and once for each of its pieces";
  EXPECT_TRUE(said_.ends_with("was stopped: its caller waits for it no longer")) << said_;
}

TEST_F(KeptFilesOfARevision, OthersKeepTheirRoomOnTheDisk) {
  std::unique_ptr<support::LoopDisk> disk;
  ESCROW_NEEDS_LOOP_DISK(disk, "ext4");
  const auto beyond_what_is_kept = [&] {
    struct statvfs about {};
    EXPECT_EQ(0, ::statvfs(disk->path().c_str(), &about));
    return static_cast<std::int64_t>(about.f_bavail * about.f_frsize) -
           static_cast<std::int64_t>(about.f_blocks * about.f_frsize / 20);
  };
  const storage::UniqueFd filler(
      ::open((disk->path() + "/filler").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(0, ::posix_fallocate(filler.get(), 0, beyond_what_is_kept() - 20 * static_cast<std::int64_t>(kMiB)));
  storage::CopyBudget budget;
  EXPECT_EQ(put({{"a", std::string(12 * kMiB, 'a')}, {"b", std::string(12 * kMiB, 'b')}}, budget, disk->path() + "/to"),
            Errc::no_space);
  EXPECT_NE(said_.find("stay free for others"), std::string::npos) << said_;
  EXPECT_GE(beyond_what_is_kept(), 0);
}

}  // namespace
}  // namespace escrow::daemon
