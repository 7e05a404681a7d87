// A disk of a test's own: a file below $TMPDIR as a loop device, which stays attached while its file system is
// unmounted. Only the thread that made it sees its mounts, so no other process keeps them. Needs root and loop devices;
// not thread-safe. What fails throws std::runtime_error.
#pragma once

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "storage/disk/unique_fd.h"
#include "tests/support/temporary_directory.h"

namespace escrow::support {

struct NoLoopDisk : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class LoopDisk {
 public:
  // Makes a file system with mkfs.KIND and mounts it. Throws NoLoopDisk when this machine or this user cannot.
  explicit LoopDisk(const std::string& kind);
  LoopDisk(const LoopDisk&) = delete;
  LoopDisk& operator=(const LoopDisk&) = delete;
  // Unmounts it and detaches the device. The thread sees its old mounts again.
  ~LoopDisk();

  // The mount point.
  const std::string& path() const { return path_; }
  void mount() { mount_at(path_, device_name_, 0); }
  // With everything that was mounted by bind().
  void unmount();
  void unmount_and_mount() { unmount(), mount(); }
  void remount(bool read_only);
  // A second mount point of the same file system.
  std::string bind();
  // As after an I/O error: nothing reaches the disk any more, not even the journal (FS_IOC_SHUTDOWN).
  void shut_down();

 private:
  struct OldMounts {
    ~OldMounts();
    storage::UniqueFd mounts, directory;
  };

  void mount_at(const std::string& where, const std::string& what, unsigned long flags);
  // Of losetup(8), with the device detached when this process has died.
  void attach(const std::string& image);
  void enter_private_mounts();

  TemporaryDirectory directory_;
  std::string kind_, path_ = directory_.path() + "/disk", device_name_;
  std::vector<std::string> mounts_;
  OldMounts old_;
  storage::UniqueFd device_;
};

}  // namespace escrow::support

// At the start of a test or of SetUp: makes `disk`, a std::unique_ptr.
#define ESCROW_NEEDS_LOOP_DISK(disk, kind)                                                                      \
  try {                                                                                                         \
    (disk) = std::make_unique<::escrow::support::LoopDisk>(kind);                                               \
  } catch (const ::escrow::support::NoLoopDisk& why) {                                                          \
    const char* const required = std::getenv("REQUIRE_FUSE");                                                   \
    if (required != nullptr && std::string(required) == "1") FAIL() << why.what() << ", and REQUIRE_FUSE is 1"; \
    GTEST_SKIP() << why.what();                                                                                 \
  }                                                                                                             \
  static_assert(true)
