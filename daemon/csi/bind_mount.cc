#include "daemon/csi/bind_mount.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "session/base/error.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

[[noreturn]] void refuse(const std::string& doing) {
  throw Error(errno == EBUSY ? Errc::busy : Errc::unavailable, "cannot " + doing + ": " + std::strerror(errno));
}

// Decodes the kernel's \ooo: blanks, newlines, backslashes.
std::string unescaped(const std::string& text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\' && at + 3 < text.size()) {
      plain += static_cast<char>(std::strtol(text.substr(at + 1, 3).c_str(), nullptr, 8));
      at += 3;
    } else {
      plain += text[at];
    }
  }
  return plain;
}

}  // namespace

// Later lines lie over earlier ones. A line: ID PARENT DEVICE ROOT POINT OPTIONS TAGS... - KIND SOURCE OPTIONS.
std::optional<MountedThere> mount_at(const std::string& path) {
  std::ifstream table("/proc/self/mountinfo");
  std::optional<MountedThere> found;
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string word, device, point, kind, source;
    words >> word >> word >> device >> word >> point;
    if (unescaped(point) != path) continue;
    while (words >> word && word != "-") {
    }
    words >> kind >> source;
    found = MountedThere{.source = unescaped(source), .device = device};
  }
  return found;
}

void bind_mount(const std::string& source, const std::string& target, bool is_read_only) {
  const std::optional<MountedThere> wanted = mount_at(source);
  if (!wanted) {
    throw Error(Errc::unavailable, "the session's mount is not seen at " + source + "; escrowd and this driver need "
                                   "that directory with propagation, Bidirectional there and HostToContainer here");
  }
  const std::optional<MountedThere> there = mount_at(target);
  if (there == wanted) return;
  if (there) throw Error(Errc::unavailable, "something else is mounted at " + target);
  if (::mkdir(target.c_str(), 0750) != 0 && errno != EEXIST) refuse("make the directory " + target);
  if (::mount(source.c_str(), target.c_str(), nullptr, MS_BIND, nullptr) != 0) refuse("mount the session at " + target);
  const unsigned long flags = MS_BIND | MS_REMOUNT | MS_NOSUID | MS_NODEV | (is_read_only ? MS_RDONLY : 0);
  if (::mount(nullptr, target.c_str(), nullptr, flags, nullptr) == 0) return;
  const int error = errno;
  ::umount2(target.c_str(), MNT_DETACH);
  errno = error;
  refuse("restrict the mount at " + target);
}

void remove_bind_mount(const std::string& target) {
  while (mount_at(target)) {
    if (::umount2(target.c_str(), UMOUNT_NOFOLLOW) != 0 && errno != EINVAL) refuse("unmount " + target);
  }
  if (::rmdir(target.c_str()) != 0 && errno != ENOENT) refuse("remove the directory " + target);
}

}  // namespace escrow::daemon
