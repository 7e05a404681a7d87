#include "daemon/mountpoint.h"

#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "daemon/config.h"
#include "daemon/dead_mount.h"
#include "session/error.h"
#include "session/repo_path.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
namespace fs = std::filesystem;

namespace {

bool is_below(const std::string& path, const std::string& directory) {
  return path == directory || directory == "/" ||
         (path.starts_with(directory) && path.size() > directory.size() && path[directory.size()] == '/');
}

// mountinfo writes space, tab, newline and backslash as octal escapes (proc(5)).
std::string unescape(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\' && at + 3 < text.size()) {
      out += static_cast<char>((text[at + 1] - '0') * 64 + (text[at + 2] - '0') * 8 + (text[at + 3] - '0'));
      at += 3;
    } else {
      out += text[at];
    }
  }
  return out;
}

struct MountedSession {
  std::string mountpoint, source;
};

// As run_mountpoint.cc names them (mkdtemp(3)).
bool is_run_directory(const std::string& mountpoint) {
  constexpr std::string_view kPrefix = "escrow-";
  const std::string name = mountpoint.substr(mountpoint.rfind('/') + 1);
  return name.starts_with(kPrefix) && name.size() == kPrefix.size() + 6;
}

std::vector<MountedSession> mounted_sessions() {
  std::vector<MountedSession> found;
  std::ifstream table("/proc/self/mountinfo");
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    std::string skip, mountpoint, field, type, source;
    fields >> skip >> skip >> skip >> skip >> mountpoint;
    while (fields >> field && field != "-") {
    }
    fields >> type >> source;
    if (type == "fuse.escrow") found.push_back({unescape(mountpoint), unescape(source)});
  }
  return found;
}

// Only then does it lie in a session's mount, and the table of the mounts, long where there are many, need be read.
bool is_on_fuse(const std::string& path) {
  struct statfs status {};
  return ::statfs(path.c_str(), &status) != 0 || status.f_type == FUSE_SUPER_MAGIC;
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(Errc::bad_request, "cannot mount on " + session::quote_path(path) + ": " + why);
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
  struct stat about {};
  if (stat(wanted.c_str(), &about) != 0) {
    const int error = errno;
    if (error == ENOENT) refuse(wanted, "it does not exist; create the directory first");
    if (is_dead_mount(wanted)) refuse(wanted, "a dead mount is there; `umount` it first");
    refuse(wanted, std::string(std::strerror(error)));
  }
  if (!S_ISDIR(about.st_mode)) refuse(wanted, "it is not a directory");
  std::error_code failed;
  std::string path = fs::canonical(wanted, failed).string();
  if (failed) refuse(wanted, failed.message());
  if (is_below(path, git_directory)) refuse(path, "it is inside the repository itself; choose a directory elsewhere");
  const std::vector<MountedSession> sessions = is_on_fuse(path) ? mounted_sessions() : std::vector<MountedSession>();
  for (const MountedSession& mounted : sessions) {
    if (path == mounted.mountpoint) refuse(path, "session " + mounted.source + " is mounted there already");
    if (is_below(path, mounted.mountpoint)) {
      refuse(path, "it is inside the mount of session " + mounted.source + "; choose a directory outside");
    }
  }
  if (!fs::is_empty(path, failed) && !failed) refuse(path, "the directory is not empty; choose an empty one");
  if (failed) refuse(path, failed.message());
  return path;
}

void clear_dead_mounts(const std::function<bool(const std::string&)>& is_ours) {
  for (const MountedSession& mounted : mounted_sessions()) {
    if (!mounted.source.starts_with("escrow:") || !is_ours(mounted.source.substr(7))) continue;
    clear_dead_mount(mounted.mountpoint, mounted.source);
    // Only an empty directory goes, and only one that a run made for itself.
    if (is_run_directory(mounted.mountpoint)) ::rmdir(mounted.mountpoint.c_str());
  }
}

void clear_dead_mount(const std::string& mountpoint, const std::string& source) {
  for (const MountedSession& mounted : mounted_sessions()) {
    if (mounted.mountpoint != mountpoint || mounted.source != source || !is_dead_mount(mountpoint)) continue;
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
