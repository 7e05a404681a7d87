#include "storage/git/reference_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <thread>
#include <vector>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using session::Errc;
using session::Error;

constexpr auto kLongestPause = std::chrono::milliseconds(100);
constexpr auto kLongestPauseForTurn = std::chrono::milliseconds(10);
// For a lock file that somebody waited for in vain before.
constexpr auto kShortPatience = std::chrono::milliseconds(200);

// No reference has a '~' in its name (git-check-ref-format(1)).
constexpr std::string_view kMarker = "~lock", kFresh = "~new";

std::string beside(const std::string& state, const std::string& name, std::string_view suffix) {
  return state + "/locks/" + name + std::string(suffix);
}

// Each reference has a byte of its own to lock in the file of the turns; two that shared one would only wait for one
// another. (FNV-1a.)
off_t byte_of(const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001b3;
  return static_cast<off_t>(hash >> 2);
}

// A link to packed-refs stays one, as git leaves it.
std::string target_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_symlink(path, error)) return path;
  const fs::path target = fs::canonical(path, error);
  return error ? path : target.string();
}

void make_directories_above(const std::string& path) {
  std::error_code error;
  fs::create_directories(parent_of(path), error);
  if (error) throw system_error(error.value(), "create the directory " + parent_of(path));
}

UniqueFd create(const std::string& path, unsigned mode) {
  const auto attempt = [&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode); };
  UniqueFd fd(attempt());
  if (!fd && errno == ENOENT) {
    make_directories_above(path);
    fd.reset(attempt());
  }
  if (!fd) throw system_error(errno, "create " + path);
  return fd;
}

void remove_if_there(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw system_error(errno, "remove " + path);
}

// Both directories have a slash at their end, or are "".
void find_markers(const std::string& top, const std::string& below, std::vector<std::string>& names) {
  for (const std::string& name : names_in(top + below)) {
    const auto status = status_of(top + below + name);
    if (status && S_ISDIR(status->st_mode)) find_markers(top, below + name + "/", names);
    if (status && S_ISREG(status->st_mode) && name.ends_with(kMarker))
      names.push_back(below + name.substr(0, name.size() - kMarker.size()));
  }
}

// How long the lock file has been there, by the wall clock, which may be wrong.
std::chrono::nanoseconds age_of(const struct stat& file) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return std::chrono::seconds(now.tv_sec - file.st_ctim.tv_sec) +
         std::chrono::nanoseconds(now.tv_nsec - file.st_ctim.tv_nsec);
}

}  // namespace

ReferenceLock::ReferenceLock(const std::string& git_directory, const std::string& name,
                             const std::optional<std::string>& content, std::chrono::milliseconds patience)
    : ReferenceLock(git_directory, name, Sweep{}) {
  if (!take_turn(patience))
    throw Error(Errc::busy, "another process of Escrow's has held the lock of " + path_ + " for " +
                                std::to_string(patience.count()) + " ms; try again");
  sweep();
  try {
    make_marker();
    if (content) prepare(*content);
    link_or_wait(patience);
  } catch (...) {
    if (is_prepared_) ::unlink(fresh_.c_str());
    if (is_marked_) ::unlink(marker_.c_str());
    throw;
  }
}

ReferenceLock::ReferenceLock(const std::string& git_directory, const std::string& name, Sweep)
    : state_(git_directory + "/escrow"),
      name_(name),
      path_(target_of(git_directory + "/" + name)),
      marker_(beside(state_, name, kMarker)),
      fresh_(beside(state_, name, kFresh)),
      permissions_(SharedPermissions::of(git_directory)) {}

ReferenceLock::~ReferenceLock() {
  if (!is_linked_) return;
  // The marker stays as long as the lock file may: the next one finds that by it.
  if (::unlink((path_ + ".lock").c_str()) != 0 && errno != ENOENT) return;
  if (is_prepared_) ::unlink(fresh_.c_str());
  ::unlink(marker_.c_str());
}

bool ReferenceLock::take_turn(std::chrono::milliseconds patience) {
  const std::string path = state_ + "/reference.lock";
  const auto attempt = [&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644); };
  turn_.reset(attempt());
  if (!turn_ && errno == ENOENT) {
    make_directories_above(path);
    turn_.reset(attempt());
  }
  if (!turn_) throw system_error(errno, "open " + path);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte_of(name_);
  lock.l_len = 1;
  const auto deadline = Clock::now() + patience;
  auto pause = std::chrono::milliseconds(1);
  while (::fcntl(turn_.get(), F_OFD_SETLK, &lock) != 0) {
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) throw system_error(errno, "lock " + path);
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPauseForTurn);
  }
  return true;
}

// Whoever left a marker is dead, as the turn is ours.
void ReferenceLock::sweep() {
  const auto marker = status_of(marker_);
  if (!marker) return;
  const std::string path = path_ + ".lock";
  const auto lock = status_of(path);
  if (lock && lock->st_dev == marker->st_dev && lock->st_ino == marker->st_ino) remove_if_there(path);
  remove_if_there(fresh_);
  remove_if_there(marker_);
}

void ReferenceLock::make_marker() {
  create(marker_, 0666);
  is_marked_ = true;
}

void ReferenceLock::prepare(std::string_view content, unsigned mode) {
  remove_if_there(fresh_);
  const UniqueFd fd = create(fresh_, mode);
  is_prepared_ = true;
  while (!content.empty()) {
    const ssize_t count = ::write(fd.get(), content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(errno, "write " + path_);
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  permissions_.apply(fd.get(), fresh_, parent_of(path_));
  if (::fsync(fd.get()) != 0) throw system_error(errno, "write " + path_);
}

void ReferenceLock::link_or_wait(std::chrono::milliseconds patience) {
  const std::string lock = path_ + ".lock";
  const auto begin = Clock::now();
  auto pause = std::chrono::milliseconds(1);
  while (::link(marker_.c_str(), lock.c_str()) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) {  // git removes directories that a packed or deleted branch left empty
      permissions_.make_directories(parent_of(state_), parent_of(path_));
    } else if (errno != EEXIST) {
      throw system_error(errno, "create " + lock);
    }
    // Those who queue behind one that waited in vain do not each wait as long for the same.
    const auto waited = Clock::now() - begin;
    struct stat file {};
    const bool is_old = waited > kShortPatience && ::lstat(lock.c_str(), &file) == 0 && age_of(file) > kPatience;
    if (waited > patience || is_old)
      throw Error(Errc::busy, "another process has held the lock " + lock +
                                  " for a long time; if no git process is running, remove that file");
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
  is_linked_ = true;
}

void ReferenceLock::land() {
  // Empty directories where the file is to be are what deleted branches left (git: remove_empty_directories()).
  for (int attempt = 0; std::rename(fresh_.c_str(), path_.c_str()) != 0; ++attempt) {
    if ((errno != EISDIR && errno != ENOTEMPTY && errno != EEXIST) || attempt > 0)
      throw system_error(errno, "rename " + fresh_ + " to " + path_);
    std::error_code error;
    std::vector<fs::path> directories{path_};
    for (fs::recursive_directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error))
      directories.push_back(entry->path());
    for (auto directory = directories.rbegin(); directory != directories.rend(); ++directory)
      ::rmdir(directory->c_str());  // refuses what is not an empty directory
  }
  is_prepared_ = false;
}

void sweep_reference_locks(const std::string& git_directory) {
  std::vector<std::string> names;
  find_markers(git_directory + "/escrow/locks/", "", names);
  for (const std::string& name : names) {
    ReferenceLock lock(git_directory, name, ReferenceLock::Sweep{});
    if (lock.take_turn(std::chrono::milliseconds(0))) lock.sweep();
  }
}

}  // namespace escrow::storage
