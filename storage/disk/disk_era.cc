#include "storage/disk/disk_era.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <random>
#include <string_view>

#include "storage/disk/unique_fd.h"

namespace escrow::storage {
namespace {

// STATX_MNT_ID_UNIQUE, of Linux 6.8: an id of the mount that no later one gets.
constexpr unsigned kUniqueMountId = 0x4000;

// "" when it cannot be read.
std::string content(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[128];
  const ssize_t count = fd ? ::read(fd.get(), text, sizeof text) : -1;
  return count > 0 ? std::string(text, static_cast<std::size_t>(count)) : std::string();
}

// The number of the disk's attachment; a partition's is its disk's.
std::string disk_sequence(dev_t device) {
  const std::string directory = "/sys/dev/block/" + std::to_string(major(device)) + ':' + std::to_string(minor(device));
  const std::string own = content(directory + "/diskseq");
  return own.empty() ? content(directory + "/../diskseq") : own;
}

// Of a file system that lies on no disk of its own: when it was mounted.
std::string mount_id(const std::string& path) {
  struct statx status {};
  if (::statx(AT_FDCWD, path.c_str(), 0, kUniqueMountId, &status) != 0) return {};
  return (status.stx_mask & kUniqueMountId) != 0 ? std::to_string(status.stx_mnt_id) : std::string();
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
    std::string attachment = disk_sequence(status.st_dev);
    if (attachment.empty()) attachment = mount_id(path);
    if (!attachment.empty())
      return hash(boot + '/' + std::to_string(status.st_dev) + '/' + attachment) | std::uint64_t{1};
  }
  // Nothing tells: every process is one after a power loss.
  std::random_device random;
  return (std::uint64_t{random()} << 31 ^ random()) | std::uint64_t{1};
}

}  // namespace escrow::storage
