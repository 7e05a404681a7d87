// The session in whose mount a path or the current directory lies: a command given there needs neither its id nor its
// repository.
//
// Free functions without state, thread-safe. The repository is known by the process that serves the mount: its
// descriptor of the session's lock leads there. Only its own user and root can see that, so a command in a confined
// session learns nothing of the host. Sources: proc_pid_mountinfo(5), proc_pid_fd(5), getcwd(3).
#pragma once

#include <optional>
#include <string>

namespace escrow::daemon {

struct SessionHere {
  std::string id;
  std::string mountpoint;
  std::string directory;  // the path, from the root of the mount; empty: the root itself
};

// The session whose mount has this absolute path below it. Links in the path are not followed, and the mount's host is
// asked nothing.
std::optional<SessionHere> session_at(const std::string& path);

// nullopt: the current directory is in no session's mount. The file system there is asked nothing but its type.
std::optional<SessionHere> session_here();

// The git directory of the repository that the session is of; nullopt: the process that serves it cannot be seen, or
// the repository is in object storage.
std::optional<std::string> repository_of(const SessionHere& here);

}  // namespace escrow::daemon
