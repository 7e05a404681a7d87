#include "daemon/csi/bind_mount.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fuse/place.h"
#include "session/base/error.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

[[noreturn]] void refuse(const std::string& doing) {
  throw Error(errno == EBUSY ? Errc::busy : Errc::unavailable, "cannot " + doing + ": " + std::strerror(errno));
}

}  // namespace

std::optional<MountedThere> mount_at(const std::string& path) {
  std::optional<MountedThere> found;  // later lines lie over earlier ones
  for (const fuse::MountedPath& mounted : fuse::mounted_paths())
    if (mounted.path == path) found = MountedThere{.source = mounted.source, .device = mounted.device};
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
  const int error = ::mount(nullptr, target.c_str(), nullptr, flags, nullptr) == 0 ? 0 : errno;
  // The session's mount may have gone since it was seen: then the directory below it is what was bound.
  if (error == 0 && fuse::device_of(target) == wanted->device) return;
  ::umount2(target.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
  errno = error;
  if (error != 0) refuse("restrict the mount at " + target);
  throw Error(Errc::unavailable, "the session's mount at " + source + " has gone while it was mounted at " + target);
}

void remove_bind_mount(const std::string& target) {
  while (mount_at(target)) {
    if (::umount2(target.c_str(), UMOUNT_NOFOLLOW) != 0 && errno != EINVAL) refuse("unmount " + target);
  }
  if (::rmdir(target.c_str()) != 0 && errno != ENOENT) refuse("remove the directory " + target);
}

}  // namespace escrow::daemon
