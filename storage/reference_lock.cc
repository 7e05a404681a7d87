#include "storage/reference_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>
#include <vector>

#include "session/error.h"
#include "storage/durable_file.h"
#include "storage/gc_lock.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;

constexpr auto kPatience = std::chrono::seconds(10);
constexpr auto kLongestPause = std::chrono::milliseconds(100);

std::string note_of(const struct stat& file, const std::string& lock) {
  return std::to_string(file.st_dev) + " " + std::to_string(file.st_ino) + " " + lock + "\n";
}

const std::string& made(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);  // what fails shows when the file is opened
  return directory;
}

std::string candidate_in(const std::string& state) { return state + "/reference.new"; }

}  // namespace

ReferenceLock::ReferenceLock(const std::string& git_directory, const std::string& name, const session::ObjectId& value)
    : state_(git_directory + "/escrow"),
      path_(git_directory + "/" + name),
      turn_(lock_file(made(state_) + "/reference.lock", LockKind::exclusive)) {
  sweep();
  prepare(value);
  link_or_wait();
}

ReferenceLock::~ReferenceLock() {
  if (held_) ::unlink((path_ + ".lock").c_str());
  // A note that stays behind is harmless: its inode is no lock file any more.
  if (::ftruncate(turn_.get(), 0) != 0) return;
}

// The note of a process that died: the inode it names is a lock file only if that process left it.
void ReferenceLock::sweep() {
  std::string note(4096 + 64, '\0');
  const ssize_t size = ::pread(turn_.get(), note.data(), note.size(), 0);
  if (size < 0) throw system_error(errno, "read " + state_ + "/reference.lock");
  note.resize(static_cast<std::size_t>(size));
  const std::size_t lock_begins = note.find(' ', note.find(' ') + 1) + 1;
  if (note.empty() || note.back() != '\n' || lock_begins == 0) return;
  const std::string lock = note.substr(lock_begins, note.size() - lock_begins - 1);
  struct stat file {};
  if (::lstat(lock.c_str(), &file) == 0 && note_of(file, lock) == note) ::unlink(lock.c_str());
}

void ReferenceLock::prepare(const session::ObjectId& value) {
  const std::string candidate = candidate_in(state_);
  if (::unlink(candidate.c_str()) != 0 && errno != ENOENT) throw system_error(errno, "remove " + candidate);
  const UniqueFd fd = open_or_throw(AT_FDCWD, candidate.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666,
                                    "create " + candidate);
  const std::string content = value.hex() + "\n";
  if (::write(fd.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size()))
    throw system_error(errno == 0 ? ENOSPC : errno, "write " + candidate);
  if (::fsync(fd.get()) != 0) throw system_error(errno, "sync " + candidate);
  struct stat file {};
  if (::fstat(fd.get(), &file) != 0) throw system_error(errno, "look at " + candidate);
  const std::string note = note_of(file, path_ + ".lock");
  if (::ftruncate(turn_.get(), 0) != 0 ||
      ::pwrite(turn_.get(), note.data(), note.size(), 0) != static_cast<ssize_t>(note.size()))
    throw system_error(errno == 0 ? ENOSPC : errno, "write " + state_ + "/reference.lock");
}

void ReferenceLock::link_or_wait() {
  const std::string candidate = candidate_in(state_), lock = path_ + ".lock";
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  auto pause = std::chrono::milliseconds(1);
  while (::link(candidate.c_str(), lock.c_str()) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) {  // git removes directories that a packed or deleted branch left empty
      std::error_code error;
      std::filesystem::create_directories(std::filesystem::path(lock).parent_path(), error);
      if (error) throw system_error(error.value(), "create the directory of " + path_);
    } else if (errno != EEXIST) {
      throw system_error(errno, "create " + lock);
    }
    if (std::chrono::steady_clock::now() > deadline)
      throw Error(Errc::busy, "another process has held the lock " + lock +
                                  " for 10 s; if no git process is running, remove that file");
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
  held_ = true;
  ::unlink(candidate.c_str());
}

void ReferenceLock::land() {
  const std::string lock = path_ + ".lock";
  // Empty directories where the file is to be are what deleted branches left (git: remove_empty_directories()).
  for (int attempt = 0; std::rename(lock.c_str(), path_.c_str()) != 0; ++attempt) {
    if ((errno != EISDIR && errno != ENOTEMPTY && errno != EEXIST) || attempt > 0)
      throw system_error(errno, "rename " + lock + " to " + path_);
    std::error_code error;
    std::vector<std::filesystem::path> directories{path_};
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_, error))
      directories.push_back(entry.path());
    for (auto directory = directories.rbegin(); directory != directories.rend(); ++directory)
      ::rmdir(directory->c_str());  // refuses what is not an empty directory
  }
  held_ = false;
}

}  // namespace escrow::storage
