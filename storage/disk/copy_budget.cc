#include "storage/disk/copy_budget.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>

#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "session/base/still_wanted.h"
#include "storage/disk/durable_file.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;

constexpr std::uint64_t kMostKeptFree_bytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kKeptFreeShare = 20;  // a twentieth of the disk

struct Room {
  std::uint64_t left_bytes, kept_bytes;
  bool is_known = true;
  bool takes(std::uint64_t bytes) const {
    return !is_known || (left_bytes >= kept_bytes && left_bytes - kept_bytes >= bytes);
  }
};

Room room_of(int fd) {
  struct statvfs disk {};
  if (::fstatvfs(fd, &disk) != 0) throw system_error(errno, "ask how much room the disk has");
  const std::uint64_t block = disk.f_frsize;
  return {.left_bytes = disk.f_bavail * block,
          .kept_bytes = std::min(disk.f_blocks * block / kKeptFreeShare, kMostKeptFree_bytes),
          .is_known = disk.f_blocks != 0};
}

std::string copying(const std::string& path) { return "copy '" + session::quote_path(path) + "'"; }

}  // namespace

bool has_room(int fd, std::uint64_t bytes) { return room_of(fd).takes(bytes); }

void require_room(int fd, std::uint64_t bytes, const std::string& doing) {
  const Room room = room_of(fd);
  if (room.takes(bytes)) return;
  throw Error(Errc::no_space, "cannot " + doing + ": the disk has " + std::to_string(room.left_bytes) +
                                  " bytes left, of which " + std::to_string(room.kept_bytes) +
                                  " stay free for others; make room there");
}

void CopyBudget::check_going_on(const std::string& path) {
  session::require_still_wanted("copying '" + session::quote_path(path) + "'");
}

void CopyBudget::check_room(int fd, std::uint64_t bytes, const std::string& path) const {
  if (copied_bytes_ + bytes > kSmallCopy_bytes) require_room(fd, bytes, copying(path));
}

void CopyBudget::count(std::uint64_t bytes) {
  copied_bytes_ += bytes;
  if (copied_bytes_ > most_bytes_)
    throw Error(Errc::quota_exceeded,
                "the files have more than " + std::to_string(most_bytes_) + " bytes together");
}

}  // namespace escrow::storage
