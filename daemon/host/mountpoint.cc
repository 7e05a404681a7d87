#include "daemon/host/mountpoint.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "daemon/host/config.h"
#include "daemon/process/fresh_mountpoint.h"
#include "fuse/place.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
namespace fs = std::filesystem;

namespace {

bool is_below(const std::string& path, const std::string& directory) {
  return path == directory || directory == "/" ||
         (path.starts_with(directory) && path.size() > directory.size() && path[directory.size()] == '/');
}

std::vector<fuse::MountedPath> mounted_sessions() {
  std::vector<fuse::MountedPath> found = fuse::mounted_paths();
  std::erase_if(found, [](const fuse::MountedPath& mounted) { return mounted.type != fuse::kMountType; });
  return found;
}

[[noreturn]] void refuse_mountpoint(const std::string& path, const std::string& why, Errc code = Errc::bad_request) {
  throw Error(code, "cannot mount on " + session::quote_path(path) + ": " + why);
}

[[noreturn]] void refuse_silent(const std::string& path) {
  for (const fuse::MountedPath& mounted : mounted_sessions()) {
    if (!is_below(path, mounted.path)) continue;
    refuse_mountpoint(
        path, "it is in the mount of session " + mounted.source + ", which does not answer; `umount -f` ends it");
  }
  refuse_mountpoint(path, "the file system there does not answer", Errc::unavailable);
}

// Links of /proc/PID that keep a mount busy.
bool keeps_busy(const fs::path& process, const std::string& mountpoint) {
  std::error_code failed;
  const auto points_below = [&](const fs::path& link) {
    const std::string target = fs::read_symlink(link, failed).string();
    return !failed && is_below(target, mountpoint);
  };
  if (points_below(process / "cwd") || points_below(process / "root") || points_below(process / "exe")) return true;
  for (fs::directory_iterator at(process / "fd", failed), end; !failed && at != end; at.increment(failed)) {
    if (points_below(at->path())) return true;
  }
  std::ifstream maps(process / "maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t slash = line.find('/');
    if (slash != std::string::npos && is_below(line.substr(slash), mountpoint)) return true;
  }
  return false;
}

}  // namespace

std::string check_mountpoint(const std::string& text, const std::string& git_directory) {
  const std::string wanted = absolute_path(text);
  const fuse::Place place = fuse::look_at(wanted);
  if (!place.answered) refuse_silent(wanted);
  if (fuse::is_the_machines(place.error)) {
    refuse_mountpoint(wanted, std::string(std::strerror(place.error)) + "; try again", Errc::unavailable);
  }
  if (place.has_dead_host) refuse_mountpoint(wanted, "a dead mount is there; `umount` it first");
  if (place.path.empty() && place.error == ENOENT)
    refuse_mountpoint(wanted, "it does not exist; create the directory first");
  if (place.path.empty()) refuse_mountpoint(wanted, std::strerror(place.error));
  const std::string& path = place.path;
  if (is_below(path, git_directory))
    refuse_mountpoint(path, "it is inside the repository itself; choose a directory elsewhere");
  // Only then does it lie in a session's mount, and the table of the mounts, long where there are many, need be read.
  const std::vector<fuse::MountedPath> sessions =
      place.is_on_fuse || place.error != 0 ? mounted_sessions() : std::vector<fuse::MountedPath>();
  for (const fuse::MountedPath& mounted : sessions) {
    if (path == mounted.path) refuse_mountpoint(path, "session " + mounted.source + " is mounted there already");
    if (is_below(path, mounted.path)) {
      refuse_mountpoint(path, "it is inside the mount of session " + mounted.source + "; choose a directory outside");
    }
  }
  if (place.error != 0) refuse_mountpoint(path, std::strerror(place.error));
  if (!place.is_directory) refuse_mountpoint(wanted, "it is not a directory");
  if (!place.is_empty) refuse_mountpoint(path, "the directory is not empty; choose an empty one");
  return path;
}

mode_t closed_to_others(const std::string& mountpoint, const std::string& git_directory) {
  constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
  struct stat about {};
  // It does not lie in a session's mount: check_mountpoint() has seen to that.
  const bool is_known = ::stat(mountpoint.c_str(), &about) == 0;
  mode_t closed = is_known ? ~about.st_mode & kOthers : kOthers;
  for (fs::path at = git_directory;; at = at.parent_path()) {
    const mode_t needed = at == git_directory ? S_IROTH | S_IXOTH : S_IXOTH;
    if (::stat(at.c_str(), &about) != 0 || (about.st_mode & needed) != needed) closed = kOthers;
    if (at == at.root_path()) return closed;
  }
}

void clear_dead_mounts(const ClearIfDead& decide) {
  for (const fuse::MountedPath& mounted : mounted_sessions()) {
    if (!mounted.source.starts_with("escrow:")) continue;
    decide(mounted.source.substr(7), [&] {
      clear_dead_mount(mounted.path, mounted.source);
      remove_fresh_mountpoint(mounted.path);
    });
  }
}

void clear_dead_mount(const std::string& mountpoint, const std::string& source) {
  for (const fuse::MountedPath& mounted : mounted_sessions()) {
    if (mounted.path != mountpoint || mounted.source != source || !fuse::is_dead_mount(mountpoint)) continue;
    umount2(mountpoint.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
  }
}

std::string holders_of(const std::string& mountpoint) {
  std::vector<std::string> found;
  std::error_code failed;
  for (fs::directory_iterator at("/proc", failed), end; !failed && at != end; at.increment(failed)) {
    const std::string pid = at->path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos || pid == std::to_string(getpid())) continue;
    if (!keeps_busy(at->path(), mountpoint)) continue;
    std::string name;
    std::getline(std::ifstream(at->path() / "comm") >> std::ws, name);
    found.push_back(session::quote_path(name) + " (" + pid + ")");
  }
  std::sort(found.begin(), found.end());
  std::string joined;
  for (const std::string& holder : found) joined += (joined.empty() ? "" : ", ") + holder;
  return joined;
}

}  // namespace escrow::daemon
