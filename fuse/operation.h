// The kinds of requests a mount serves, how many of each it has served, and how long they took. Thread-safe.
#pragma once

#include <algorithm>
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

// How long requests took, from their arrival here to their reply: how many took up to each of the bounds, and in the
// last place how many took longer.
inline constexpr std::array<std::chrono::nanoseconds, 10> kTimeBounds = {
    std::chrono::microseconds(10),  std::chrono::microseconds(25), std::chrono::microseconds(50),
    std::chrono::microseconds(100), std::chrono::microseconds(250), std::chrono::milliseconds(1),
    std::chrono::milliseconds(5),   std::chrono::milliseconds(25),  std::chrono::milliseconds(100),
    std::chrono::seconds(1),
};
struct OperationTimes {
  std::array<std::uint64_t, kTimeBounds.size() + 1> within{};
  double seconds = 0;  // all together

  void add(const OperationTimes& more) noexcept {
    for (std::size_t at = 0; at < within.size(); ++at) within[at] += more.within[at];
    seconds += more.seconds;
  }
};

class OperationCounts {
 public:
  void add(Operation operation) noexcept {
    counts_[static_cast<std::size_t>(operation)].fetch_add(1, std::memory_order_relaxed);
  }
  void add_time(Operation operation, std::chrono::nanoseconds taken) noexcept {
    Times& times = times_[static_cast<std::size_t>(operation)];
    const auto bound = std::lower_bound(kTimeBounds.begin(), kTimeBounds.end(), taken);
    times.within[static_cast<std::size_t>(bound - kTimeBounds.begin())].fetch_add(1, std::memory_order_relaxed);
    times.nanoseconds.fetch_add(static_cast<std::uint64_t>(taken.count()), std::memory_order_relaxed);
  }
  // Of those that were answered with work to be done; others take next to none.
  OperationTimes times_of(Operation operation) const noexcept {
    const Times& times = times_[static_cast<std::size_t>(operation)];
    OperationTimes result;
    for (std::size_t at = 0; at < times.within.size(); ++at) result.within[at] = times.within[at].load();
    result.seconds = 1e-9 * static_cast<double>(times.nanoseconds.load());
    return result;
  }
  std::uint64_t of(Operation operation) const noexcept {
    return counts_[static_cast<std::size_t>(operation)].load(std::memory_order_relaxed);
  }
  std::uint64_t all() const noexcept {
    std::uint64_t sum = 0;
    for (const std::atomic<std::uint64_t>& count : counts_) sum += count.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  struct Times {
    std::array<std::atomic<std::uint64_t>, kTimeBounds.size() + 1> within{};
    std::atomic<std::uint64_t> nanoseconds = 0;
  };
  std::array<std::atomic<std::uint64_t>, kOperations> counts_{};  // self-locking
  std::array<Times, kOperations> times_{};                        // self-locking
};

}  // namespace escrow::fuse
