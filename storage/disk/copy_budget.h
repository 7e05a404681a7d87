// Limits on what is written to the machine's disk for somebody: room that stays for others, a size, and a stop when he
// does not want it any more (session/base/still_wanted.h).
//
// Every copy that is not a program's own write asks here: copies of directories and of a cache's files (copy_tree.h),
// files of a revision, and the cache of large blobs. Sources: statvfs(3).
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace escrow::storage {

// Whether the disk of `fd` takes `bytes` more and keeps 5 % of its size free, at most 1 GiB. True when the disk does
// not tell its size. Thread-safe. Throws Error{input_output}.
bool has_room(int fd, std::uint64_t bytes);
// Error{no_space} with "cannot <doing>: ..." in place of false.
void require_room(int fd, std::uint64_t bytes, const std::string& doing);

// Of one copy. Not thread-safe. Paths are for messages.
class CopyBudget {
 public:
  // The first ones are copied even onto a disk that is almost full.
  static constexpr std::uint64_t kSmallCopy_bytes = std::uint64_t{16} << 20;

  explicit CopyBudget(std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max())
      : most_bytes_(most_bytes) {}

  // Throws Error{unavailable} when the copy is not wanted any more.
  static void check_going_on(const std::string& path);
  // Before `bytes` are written to the disk of `fd`. Throws Error{no_space}.
  void check_room(int fd, std::uint64_t bytes, const std::string& path) const;
  // After they were written. Throws Error{quota_exceeded}.
  void count(std::uint64_t bytes);

 private:
  const std::uint64_t most_bytes_;
  std::uint64_t copied_bytes_ = 0;
};

}  // namespace escrow::storage
