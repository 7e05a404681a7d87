#include "daemon/process/fresh_mountpoint.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "session/base/error.h"

namespace escrow::daemon {
namespace {

constexpr std::string_view kPrefix = "/escrow-", kName = "/mnt";
constexpr std::size_t kNameCharacters = 6;  // as mkdtemp(3) makes them
constexpr int kUsualPaths = 4, kAttempts = 8;

// Empty: it is no path of a fresh mountpoint.
std::string closed_directory_of(std::string_view path) {
  if (!path.ends_with(kName)) return "";
  path.remove_suffix(kName.size());
  const std::size_t name = path.rfind('/');
  const bool is_ours = name != std::string_view::npos && path.substr(name).starts_with(kPrefix) &&
                       path.size() - name == kPrefix.size() + kNameCharacters;
  return is_ours ? std::string(path) : "";
}

// -1: it is not there, or somebody else has locked it.
FileDescriptor lock(const std::string& directory) {
  FileDescriptor held(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (held && ::flock(held.get(), LOCK_EX | LOCK_NB) != 0) held.reset();
  return held;
}

bool is_at(const FileDescriptor& directory, const std::string& path) {
  struct stat held, there;
  return ::fstat(directory.get(), &held) == 0 && ::lstat(path.c_str(), &there) == 0 && held.st_ino == there.st_ino &&
         held.st_dev == there.st_dev;
}

// Only the holder of the lock of the directory that is at the path removes it: another process may have made it anew.
void remove_directories(const FileDescriptor& held, const std::string& closed) noexcept {
  if (!held || !is_at(held, closed)) return;
  ::rmdir((closed + std::string(kName)).c_str());
  ::rmdir(closed.c_str());
}

}  // namespace

std::string base_directory(uid_t uid) {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  struct stat status;
  const bool usable = runtime && runtime[0] == '/' && uid == ::geteuid() && ::stat(runtime, &status) == 0 &&
                      S_ISDIR(status.st_mode) && status.st_uid == uid && ::access(runtime, W_OK | X_OK) == 0;
  return usable ? runtime : "/tmp";
}

// FNV-1a: the same in every version of Escrow and of the library.
std::string name_of_key(std::string_view key) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  constexpr std::string_view kCharacters = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::string name;
  for (; name.size() < kNameCharacters; hash /= kCharacters.size()) name += kCharacters[hash % kCharacters.size()];
  return name;
}

// Of a directory that was just made: locked, as long as no late removal was quicker, and ready to be mounted on.
bool FreshMountpoint::take(const std::string& closed, uid_t uid, gid_t gid) {
  lock_ = lock(closed);
  if (!lock_ || !is_at(lock_, closed)) return false;
  path_ = closed + std::string(kName);
  if (::mkdir(path_.c_str(), 0755) != 0 || ::chmod(path_.c_str(), 0755) != 0) return false;
  return ::geteuid() != 0 || ::chown(closed.c_str(), uid, gid) == 0;
}

FreshMountpoint::FreshMountpoint(uid_t uid, gid_t gid, const std::string& key) {
  const std::string start = base_directory(uid) + std::string(kPrefix);
  for (int number = 0; number < kUsualPaths; ++number) {
    const std::string usual = start + name_of_key(number == 0 ? key : key + '\n' + std::to_string(number));
    // A killed run leaves empty directories. A file of another program keeps them, and the path.
    remove_fresh_mountpoint(usual + std::string(kName));
    // Another user may have made a directory there: only one that this call makes is used.
    if (::mkdir(usual.c_str(), 0700) != 0) continue;
    if (take(usual, uid, gid)) return;
    remove_directories(lock_, usual);
  }
  int error = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string random = start + std::string(kNameCharacters, 'X');
    if (::mkdtemp(random.data()) == nullptr) {
      error = errno;
      break;
    }
    if (take(random, uid, gid)) return;
    error = errno;
    if (!lock_) ::rmdir(random.c_str());  // no other run takes a random path
    remove_directories(lock_, random);
  }
  throw session::Error(session::Errc::unavailable, "no directory to mount on could be made below " + start + ": " +
                                                       std::strerror(error) + "; name one with --mountpoint");
}

FreshMountpoint::~FreshMountpoint() { remove_directories(lock_, closed_directory_of(path_)); }

void remove_fresh_mountpoint(const std::string& path) noexcept {
  const std::string closed = closed_directory_of(path);
  if (!closed.empty()) remove_directories(lock(closed), closed);
}

}  // namespace escrow::daemon
