#include "storage/disk/disk_era.h"

#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <random>
#include <string_view>

#include "storage/disk/unique_fd.h"

namespace escrow::storage {
namespace {

// statx(2): the id of a mount, which a later one may get; and of Linux 6.8, one that none gets.
constexpr unsigned kMountId = 0x1000, kUniqueMountId = 0x4000;
// Each has a directory for each block device that is mounted.
constexpr const char* kMountedDevices[] = {"/sys/fs/ext4/", "/sys/fs/xfs/", "/sys/fs/f2fs/", "/sys/fs/nilfs2/"};

// "" when it cannot be read.
std::string content(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[128];
  const ssize_t count = fd ? ::read(fd.get(), text, sizeof text) : -1;
  return count > 0 ? std::string(text, static_cast<std::size_t>(count)) : std::string();
}

std::string in_sysfs(dev_t device) {
  return "/sys/dev/block/" + std::to_string(major(device)) + ':' + std::to_string(minor(device));
}

// The number of the disk's attachment; a partition's is its disk's.
std::string disk_sequence(dev_t device) {
  const std::string own = content(in_sysfs(device) + "/diskseq");
  return own.empty() ? content(in_sysfs(device) + "/../diskseq") : own;
}

// "" when there is no such directory.
std::string inode_number(const std::string& directory) {
  struct stat status {};
  return ::stat(directory.c_str(), &status) == 0 ? std::to_string(status.st_ino) : std::string();
}

// Btrfs lies on several disks and has no device number of its own; its directory in sysfs has its UUID for a name.
std::string btrfs_directory(const std::string& path) {
  struct statfs about {};
  if (::statfs(path.c_str(), &about) != 0 || about.f_type != BTRFS_SUPER_MAGIC) return {};
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  btrfs_ioctl_fs_info_args information{};
  if (!fd || ::ioctl(fd.get(), BTRFS_IOC_FS_INFO, &information) != 0) return {};
  std::string uuid;
  for (const unsigned char byte : information.fsid) {
    if (uuid.size() == 8 || uuid.size() == 13 || uuid.size() == 18 || uuid.size() == 23) uuid += '-';
    uuid += "0123456789abcdef"[byte >> 4];
    uuid += "0123456789abcdef"[byte & 15];
  }
  return "/sys/fs/btrfs/" + uuid;
}

// The inode number of the directory that sysfs has of the mounted file system; "" when it has none.
std::string superblock(const std::string& path, dev_t device) {
  std::error_code error;
  const std::string name = std::filesystem::read_symlink(in_sysfs(device), error).filename();
  if (name.empty()) {
    const std::string directory = btrfs_directory(path);
    return directory.empty() ? std::string() : inode_number(directory);
  }
  for (const char* const devices : kMountedDevices)
    if (std::string number = inode_number(devices + name); !number.empty()) return number;
  return {};
}

// "" when the kernel has only ids that a later mount may get, unless `reused_is_good_enough`.
std::string mount_id(const std::string& path, bool reused_is_good_enough) {
  struct statx status {};
  if (::statx(AT_FDCWD, path.c_str(), 0, kMountId | kUniqueMountId, &status) != 0) return {};
  const unsigned wanted = reused_is_good_enough ? kMountId | kUniqueMountId : kUniqueMountId;
  return (status.stx_mask & wanted) != 0 ? std::to_string(status.stx_mnt_id) : std::string();
}

// FNV-1a: the same in every process.
std::uint64_t hash(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return value >> 1;  // SQLite's integers have a sign
}

}  // namespace

std::uint64_t disk_era(const std::string& path) {
  struct stat status {};
  const std::string boot = content("/proc/sys/kernel/random/boot_id");
  if (!boot.empty() && ::stat(path.c_str(), &status) == 0) {
    const std::string disk = disk_sequence(status.st_dev);
    std::string mount = superblock(path, status.st_dev);
    if (mount.empty()) mount = mount_id(path, !disk.empty());
    if (!mount.empty()) {
      const std::string device = std::to_string(status.st_dev);
      return hash(boot + '/' + device + '/' + disk + '/' + mount) | std::uint64_t{1};
    }
  }
  // Nothing tells: every process is one after a power loss.
  std::random_device random;
  return (std::uint64_t{random()} << 31 ^ random()) | std::uint64_t{1};
}

}  // namespace escrow::storage
