#include "daemon/run_mountpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "daemon/mountpoint.h"
#include "session/error.h"

namespace escrow::daemon {
namespace {

std::string base_directory(uid_t uid) {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  struct stat status;
  const bool usable = runtime && runtime[0] == '/' && uid == ::geteuid() && ::stat(runtime, &status) == 0 &&
                      S_ISDIR(status.st_mode) && status.st_uid == uid && ::access(runtime, W_OK | X_OK) == 0;
  return usable ? runtime : "/tmp";
}

std::string make_directory(uid_t uid) {
  std::string path = base_directory(uid) + "/escrow-XXXXXX";
  if (!::mkdtemp(path.data())) {
    throw session::Error(session::Errc::unavailable, "no directory to mount on could be made as " + path + ": " +
                                                         std::strerror(errno) + "; name one with --mountpoint");
  }
  return path;
}

}  // namespace

RunMountpoint::RunMountpoint(const std::string& wanted, const std::string& git_directory, uid_t uid)
    : path_(wanted.empty() ? make_directory(uid) : check_mountpoint(wanted, git_directory)),
      is_fresh_(wanted.empty()) {}

RunMountpoint::~RunMountpoint() {
  if (is_fresh_) ::rmdir(path_.c_str());
}

}  // namespace escrow::daemon
