#include "daemon/process/fresh_mountpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "session/error.h"

namespace escrow::daemon {
namespace {

constexpr std::string_view kPrefix = "/escrow-", kName = "/mnt";
constexpr std::size_t kRandom = 6;  // characters, of mkdtemp(3)

std::string base_directory(uid_t uid) {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  struct stat status;
  const bool usable = runtime && runtime[0] == '/' && uid == ::geteuid() && ::stat(runtime, &status) == 0 &&
                      S_ISDIR(status.st_mode) && status.st_uid == uid && ::access(runtime, W_OK | X_OK) == 0;
  return usable ? runtime : "/tmp";
}

}  // namespace

std::string make_fresh_mountpoint(uid_t uid, gid_t gid) {
  std::string closed = base_directory(uid) + std::string(kPrefix) + std::string(kRandom, 'X');
  bool is_made = ::mkdtemp(closed.data()) != nullptr;
  const std::string path = closed + std::string(kName);
  is_made = is_made && ::mkdir(path.c_str(), 0755) == 0 && ::chmod(path.c_str(), 0755) == 0;
  if (is_made && ::geteuid() == 0) is_made = ::chown(closed.c_str(), uid, gid) == 0;
  if (is_made) return path;
  const int error = errno;
  remove_fresh_mountpoint(path);
  throw session::Error(session::Errc::unavailable, "no directory to mount on could be made as " + path + ": " +
                                                       std::strerror(error) + "; name one with --mountpoint");
}

void remove_fresh_mountpoint(const std::string& path) noexcept {
  if (!path.ends_with(kName)) return;
  const std::string_view closed = std::string_view(path).substr(0, path.size() - kName.size());
  const std::size_t name = closed.rfind('/');
  if (name == std::string_view::npos || !closed.substr(name).starts_with(kPrefix) ||
      closed.size() - name != kPrefix.size() + kRandom) {
    return;
  }
  ::rmdir(path.c_str());
  ::rmdir(std::string(closed).c_str());
}

}  // namespace escrow::daemon
