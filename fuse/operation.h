// The kinds of requests a mount serves, how many of each it has served, and how long they took. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace escrow::fuse {

enum class Operation : std::size_t {
  lookup, forget, getattr, setattr, readlink, mknod, mkdir, unlink, rmdir, symlink, rename, link, open, read, write,
  statfs, fsync, setxattr, getxattr, listxattr, removexattr, opendir, readdir, readdirplus, fsyncdir, create,
  fallocate, lseek, copy_file_range, ioctl, poll, release, releasedir,
};
inline constexpr std::size_t kOperations = static_cast<std::size_t>(Operation::releasedir) + 1;

constexpr const char* name_of(Operation operation) noexcept {
  switch (operation) {
    case Operation::lookup: return "lookup";
    case Operation::forget: return "forget";
    case Operation::getattr: return "getattr";
    case Operation::setattr: return "setattr";
    case Operation::readlink: return "readlink";
    case Operation::mknod: return "mknod";
    case Operation::mkdir: return "mkdir";
    case Operation::unlink: return "unlink";
    case Operation::rmdir: return "rmdir";
    case Operation::symlink: return "symlink";
    case Operation::rename: return "rename";
    case Operation::link: return "link";
    case Operation::open: return "open";
    case Operation::read: return "read";
    case Operation::write: return "write";
    case Operation::statfs: return "statfs";
    case Operation::fsync: return "fsync";
    case Operation::setxattr: return "setxattr";
    case Operation::getxattr: return "getxattr";
    case Operation::listxattr: return "listxattr";
    case Operation::removexattr: return "removexattr";
    case Operation::opendir: return "opendir";
    case Operation::readdir: return "readdir";
    case Operation::readdirplus: return "readdirplus";
    case Operation::fsyncdir: return "fsyncdir";
    case Operation::create: return "create";
    case Operation::fallocate: return "fallocate";
    case Operation::lseek: return "lseek";
    case Operation::copy_file_range: return "copy_file_range";
    case Operation::ioctl: return "ioctl";
    case Operation::poll: return "poll";
    case Operation::release: return "release";
    case Operation::releasedir: return "releasedir";
  }
  return "unknown";
}

class OperationCounts {
 public:
  void add(Operation operation) noexcept {
    counts_[static_cast<std::size_t>(operation)].fetch_add(1, std::memory_order_relaxed);
  }
  void add_time(Operation operation, std::chrono::nanoseconds taken) noexcept {
    nanoseconds_[static_cast<std::size_t>(operation)].fetch_add(static_cast<std::uint64_t>(taken.count()),
                                                                std::memory_order_relaxed);
  }
  // Of those that were answered with work to be done; others take next to none.
  double seconds_of(Operation operation) const noexcept {
    return 1e-9 * static_cast<double>(nanoseconds_[static_cast<std::size_t>(operation)].load());
  }
  std::uint64_t of(Operation operation) const noexcept {
    return counts_[static_cast<std::size_t>(operation)].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<std::uint64_t>, kOperations> counts_{}, nanoseconds_{};  // self-locking
};

}  // namespace escrow::fuse
