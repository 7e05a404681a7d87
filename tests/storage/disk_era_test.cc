// The era of file systems on a loop device that stays attached: as long as one is mounted, and no longer.
#include "storage/disk/disk_era.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <thread>

#include "tests/support/loop_disk.h"

namespace escrow::storage {
namespace {

class DiskEra : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string kind = GetParam();
    if (std::system(("grep -qw " + kind + " /proc/filesystems || modprobe -q " + kind).c_str()) != 0)
      GTEST_SKIP() << "this kernel has no " << kind;
    ESCROW_NEEDS_LOOP_DISK(disk_, kind);
  }
  std::uint64_t era() const { return disk_era(disk_->path()); }

  std::unique_ptr<support::LoopDisk> disk_;
};

TEST_P(DiskEra, StaysTheSameWhileTheFileSystemIsMounted) {
  const std::uint64_t first = era();
  EXPECT_EQ(first % 2, 1u);
  EXPECT_EQ(era(), first);
  EXPECT_EQ(disk_era(disk_->bind()), first) << "a bind mount";
  disk_->remount(true);
  EXPECT_EQ(era(), first) << "remounted read-only";
  disk_->remount(false);
  EXPECT_EQ(era(), first) << "remounted read-write";
  std::uint64_t elsewhere = 0;
  std::thread([&] {
    if (::unshare(CLONE_NEWNS) == 0) elsewhere = era();
  }).join();
  EXPECT_EQ(elsewhere, first) << "another mount namespace";
}

TEST_P(DiskEra, ChangesWhenTheDeviceIsMountedAgain) {
  const std::uint64_t first = era();
  disk_->unmount_and_mount();
  const std::uint64_t second = era();
  EXPECT_NE(second, first);
  disk_->unmount_and_mount();
  EXPECT_NE(era(), second);
  EXPECT_NE(era(), first);
}

INSTANTIATE_TEST_SUITE_P(Of, DiskEra, testing::Values("ext4", "xfs", "btrfs"),
                         [](const auto& of) { return std::string(of.param); });

TEST(DiskEraAfterAShutdown, ChangesOnlyWhenTheDeviceIsMountedAgain) {
  std::unique_ptr<support::LoopDisk> disk;
  ESCROW_NEEDS_LOOP_DISK(disk, "ext4");
  const std::uint64_t first = disk_era(disk->path());
  disk->shut_down();
  EXPECT_EQ(disk_era(disk->path()), first);
  disk->unmount_and_mount();
  EXPECT_NE(disk_era(disk->path()), first);
}

// On no device: the mount has the only number there is.
TEST(DiskEraOfTmpfs, ChangesWithEachMount) {
  const support::TemporaryDirectory directory;
  const auto era_of_a_mount = [&] {
    if (::mount("tmpfs", directory.path().c_str(), "tmpfs", 0, "size=1m") != 0) return std::uint64_t{0};
    const std::uint64_t era = disk_era(directory.path());
    ::umount2(directory.path().c_str(), MNT_DETACH);
    return era;
  };
  const std::uint64_t first = era_of_a_mount();
  if (first == 0) {
    const char* const required = std::getenv("REQUIRE_FUSE");
    if (required != nullptr && std::string(required) == "1") FAIL() << "cannot mount a tmpfs";
    GTEST_SKIP() << "cannot mount a tmpfs";
  }
  EXPECT_NE(era_of_a_mount(), first);
}

}  // namespace
}  // namespace escrow::storage
