#include "daemon/host/index_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <thread>
#include <utility>

#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"

namespace escrow::daemon {
namespace {

constexpr std::string_view kIndexLockText =
    "Escrow takes this work tree along with its branch. The next escrow command removes this lock if it was left "
    "behind.\n";
constexpr auto kLookForIndexLockEvery = std::chrono::milliseconds(5);
constexpr unsigned kIndexLockMode = 0644;

// No descriptor: there is one already.
storage::UniqueFd make_exclusively(const std::string& path) {
  storage::UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kIndexLockMode));
  if (!fd && errno == EEXIST) return fd;
  if (!fd) throw storage::system_error(errno, "make " + path);
  try {
    storage::write_at(fd.get(), kIndexLockText, 0, path);
  } catch (...) {
    ::unlink(path.c_str());
    throw;
  }
  return fd;
}

// The lock that a process of Escrow's left behind, as it is; no descriptor: there is none.
storage::UniqueFd adopt_index_lock(const std::string& path) {
  storage::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  std::string found(kIndexLockText.size(), '\0');
  if (!fd || ::read(fd.get(), found.data(), found.size()) != static_cast<ssize_t>(found.size())) return {};
  return found == kIndexLockText ? std::move(fd) : storage::UniqueFd();
}

// Whole from the beginning, by a second name of a file that is whole; without hard links as git does it.
storage::UniqueFd make_index_lock(const std::string& path, const std::string& scratch) {
  ::unlink(scratch.c_str());
  storage::UniqueFd fd = make_exclusively(scratch);
  const int error = ::link(scratch.c_str(), path.c_str()) == 0 ? 0 : errno;
  ::unlink(scratch.c_str());
  if (error == 0) return fd;
  if (error == EEXIST) return storage::UniqueFd();
  if (error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EXDEV || error == EMLINK)
    return make_exclusively(path);
  throw storage::system_error(error, "make " + path);
}

}  // namespace

bool IndexLock::is_gits(const std::string& index) {
  const std::string path = path_of(index);
  return storage::is_there(path) && !adopt_index_lock(path);
}

std::optional<IndexLock> IndexLock::take(const std::string& index, const std::string& scratch, Deadline deadline) {
  const std::string path = path_of(index);
  for (;;) {
    if (storage::UniqueFd left = adopt_index_lock(path)) return IndexLock(path, std::move(left));
    if (storage::UniqueFd made = make_index_lock(path, scratch)) return IndexLock(path, std::move(made));
    if (std::chrono::steady_clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(kLookForIndexLockEvery);
  }
}

IndexLock::IndexLock(std::string path, storage::UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}

IndexLock::IndexLock(IndexLock&& other) noexcept
    : path_(std::exchange(other.path_, {})), file_(std::move(other.file_)) {}

IndexLock::~IndexLock() {
  struct stat ours {}, found {};
  if (path_.empty() || ::fstat(file_.get(), &ours) != 0 || ::lstat(path_.c_str(), &found) != 0) return;
  if (ours.st_dev == found.st_dev && ours.st_ino == found.st_ino) ::unlink(path_.c_str());
}

}  // namespace escrow::daemon
