#include "daemon/host/session_here.h"

#include <linux/magic.h>
#include <sys/statfs.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "fuse/place.h"

namespace escrow::daemon {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kSource = "escrow:";

// "" is the mountpoint itself; nullopt: `path` is not below it.
std::optional<std::string> below(const std::string& path, const std::string& mountpoint) {
  if (path == mountpoint) return "";
  const std::string above = mountpoint == "/" ? mountpoint : mountpoint + '/';
  if (!path.starts_with(above)) return std::nullopt;
  return path.substr(above.size());
}

// Of the process at `process` in /proc, if it has `ending` open.
std::optional<std::string> directory_before(const std::string& ending, const fs::path& process) {
  std::error_code failed;
  for (fs::directory_iterator at(process / "fd", failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code gone;
    const std::string target = fs::read_symlink(at->path(), gone).string();
    if (!gone && target.ends_with(ending)) return target.substr(0, target.size() - ending.size());
  }
  return std::nullopt;
}

}  // namespace

std::optional<SessionHere> session_at(const std::string& path) {
  std::optional<SessionHere> found;
  // Of mounts within one another the innermost counts, of those at one place the last.
  for (const fuse::MountedPath& mounted : fuse::mounted_paths()) {
    const std::optional<std::string> directory = below(path, mounted.path);
    if (!directory || (found && mounted.path.size() < found->mountpoint.size())) continue;
    const bool is_session = mounted.type == fuse::kMountType && mounted.source.starts_with(kSource);
    found = SessionHere{.id = is_session ? mounted.source.substr(kSource.size()) : std::string(),
                        .mountpoint = mounted.path,
                        .directory = *directory};
  }
  if (found && found->id.empty()) return std::nullopt;
  return found;
}

std::optional<SessionHere> session_here() {
  struct statfs about {};
  if (::statfs(".", &about) != 0 || static_cast<unsigned long>(about.f_type) != FUSE_SUPER_MAGIC) return std::nullopt;
  std::error_code failed;
  const std::string path = fs::current_path(failed).string();
  if (failed) return std::nullopt;
  return session_at(path);
}

std::optional<std::string> repository_of(const SessionHere& here) {
  const std::string ending = "/escrow/sessions/" + here.id + "/lock";
  std::error_code failed;
  for (fs::directory_iterator at("/proc", failed), end; !failed && at != end; at.increment(failed)) {
    const std::string name = at->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (std::optional<std::string> found = directory_before(ending, at->path())) return found;
  }
  return std::nullopt;
}

}  // namespace escrow::daemon
