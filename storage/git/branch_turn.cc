#include "storage/git/branch_turn.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"

namespace escrow::storage {
namespace {

using Clock = std::chrono::steady_clock;

// Bytes of one branch: a door that is held while a ticket is chosen, then the tickets. They begin anew whenever nobody
// waits.
constexpr std::uint64_t kBytes = std::uint64_t{1} << 22;
constexpr std::uint64_t kDoor = 0, kFirst = 1, kLast = kBytes - 1;
constexpr auto kShortestPause = std::chrono::microseconds(500);
constexpr auto kLongestTurnPause = std::chrono::milliseconds(20);

// Two branches that shared their bytes would only wait for one another. (FNV-1a.)
std::uint64_t place_of(const std::string& branch) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char c : branch) hash = (hash ^ c) * 0x100000001b3;
  return (hash >> 24) * kBytes;
}

// Both in it.
struct flock lock_of(std::uint64_t first, std::uint64_t last, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(first);
  lock.l_len = static_cast<off_t>(last - first + 1);
  return lock;
}

}  // namespace

BranchTurn::BranchTurn(const std::string& state_directory, const std::string& branch,
                       std::chrono::milliseconds patience)
    : path_(state_directory + "/turns"),
      begin_(place_of(branch)),
      file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (!file_) return;
  try {
    queue(patience);
  } catch (const session::Error&) {
    // The kernel gives no lock, as over some network file systems. The door, if this has it, is let go of: others would
    // wait for it as long as the commit takes.
    file_.reset();
  }
}

void BranchTurn::queue(std::chrono::milliseconds patience) {
  if (!pass_the_door(patience)) return;
  take_ticket();
  try_lock(kDoor, F_UNLCK);
  wait(patience);
}

// What cannot be asked is no reason to make anybody wait.
bool BranchTurn::is_wanted() const {
  if (!file_) return false;
  std::uint64_t by = 0;
  try {
    return is_taken(ticket_ + 1, kLast, by);
  } catch (const session::Error&) {
    return false;
  }
}

bool BranchTurn::is_taken(std::uint64_t first, std::uint64_t last, std::uint64_t& by) const {
  if (first > last) return false;
  struct flock lock = lock_of(begin_ + first, begin_ + last, F_WRLCK);
  if (::fcntl(file_.get(), F_OFD_GETLK, &lock) != 0) throw system_error(errno, "examine the locks of " + path_);
  if (lock.l_type == F_UNLCK) return false;
  by = static_cast<std::uint64_t>(lock.l_start) - begin_;
  return true;
}

std::uint64_t BranchTurn::lowest(std::uint64_t first, std::uint64_t last) const {
  std::uint64_t found = last + 1;
  for (std::uint64_t by = 0; found > first && is_taken(first, found - 1, by);) found = by;
  return found;
}

bool BranchTurn::try_lock(std::uint64_t byte, short type) const {
  struct flock lock = lock_of(begin_ + byte, begin_ + byte, type);
  if (::fcntl(file_.get(), F_OFD_SETLK, &lock) == 0) return true;
  if (errno == EAGAIN || errno == EACCES || errno == EINTR) return false;
  throw system_error(errno, "lock " + path_);
}

bool BranchTurn::pass_the_door(std::chrono::milliseconds patience) const {
  for (const auto deadline = Clock::now() + patience; !try_lock(kDoor, F_WRLCK);) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(kShortestPause);
  }
  return true;
}

// Behind the highest that is taken. Where tickets were never all given back since the first, the last byte may be
// another's: then there is no queue for us.
void BranchTurn::take_ticket() {
  ticket_ = kFirst;
  for (std::uint64_t by = 0; ticket_ <= kLast && is_taken(ticket_, kLast, by);) ticket_ = by + 1;
  ticket_ = std::min(ticket_, kLast);
  try_lock(ticket_, F_WRLCK);
}

void BranchTurn::wait(std::chrono::milliseconds patience) const {
  std::uint64_t first = 0;
  auto deadline = Clock::now() + patience;
  for (;;) {
    const std::uint64_t now = lowest(kFirst, ticket_ - 1);
    if (now >= ticket_) return;
    if (now != first) {
      first = now;
      deadline = Clock::now() + patience;
    } else if (Clock::now() > deadline) {
      return;
    }
    // Who is next looks often, who is far behind seldom.
    const auto pause = kShortestPause * static_cast<long>(std::min<std::uint64_t>(ticket_ - now, 1000));
    std::this_thread::sleep_for(std::min<std::chrono::microseconds>(pause, kLongestTurnPause));
  }
}

}  // namespace escrow::storage
