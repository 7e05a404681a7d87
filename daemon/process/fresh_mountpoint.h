// A directory to mount on that is made for one run and goes with it. It lies below a directory of its own that only the
// run's user may enter: a mount that root makes is open to everybody who reaches it, and the repository may be private.
// No state; thread-safe.
#pragma once

#include <sys/types.h>

#include <string>

namespace escrow::daemon {

// Below $XDG_RUNTIME_DIR (when `uid` is this process's user, who alone may enter it) or /tmp.
// Throws Error{unavailable}.
std::string make_fresh_mountpoint(uid_t uid, gid_t gid);

// Removes one, of a run that was killed as well: empty directories, and only such as are named so. It is not mounted.
void remove_fresh_mountpoint(const std::string& path) noexcept;

}  // namespace escrow::daemon
