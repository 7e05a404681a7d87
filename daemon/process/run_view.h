// The mount namespace of the command of a run with a cache: its own session is at a path that is the same for all runs
// of the repository, and no other session is mounted.
//
// Build tools write absolute paths into what they make, and a cache takes them to the next run. Two runs at once cannot
// have one path of the machine; at two paths, the build of one would read the files of the other. So each sees its
// session at the same path in a mount namespace of its own. A service that sees the machine's mounts instead, as
// dockerd does, cannot take the path for a directory, nor make it: there, a file is in its way.
//
// Nothing is thrown. Sources: mount_namespaces(7), mount(2), umount(2), user_namespaces(7), tmpfiles.d(5).
#pragma once

#include <string>
#include <string_view>

#include "daemon/process/file_descriptor.h"
#include "daemon/process/user_namespace.h"

namespace escrow::daemon {

// The path for runs of one key: BASE/session/KEY, where BASE is /run/escrow-runs for root, else $XDG_RUNTIME_DIR/
// escrow-runs or /tmp/escrow-runs-UID. BASE, which only its user may enter, and a file BASE/session stay. A lock keeps
// clean-ups of /tmp from removing them, and with them what is mounted there in some namespace (flock(2), as
// systemd-tmpfiles honours it).
class FixedPath {
 public:
  // Makes them. Not usable where they cannot be made, or somebody else has made them.
  explicit FixedPath(std::string_view key);

  const std::string& path() const noexcept { return path_; }  // empty: not usable
  static std::string base();                                  // BASE of this user

 private:
  std::string path_;
  FileDescriptor lock_;
};

// Whether a process that may mount in this way can have a view, in a user namespace where it has no right to mount by
// itself. Tries it, in a child.
bool may_make_view(MountAccess access);

// Gives this process a mount namespace in which the mount at `mountpoint` is at `path`, which is the same or a
// FixedPath. All other sessions, as far as this user can reach them, are gone from it, and an empty directory is where
// they were; so it is at another path of this one. A mount that came from the namespace of another user cannot be taken
// away, and lives on below that directory for as long as this namespace. Mounts that the machine gets later are not
// seen. The process is single-threaded and may mount (CAP_SYS_ADMIN). 0, or an errno.
int enter_view(const std::string& mountpoint, const std::string& path);

}  // namespace escrow::daemon
