// Who is at the other end of a Unix socket: what the kernel says of the process that connected.
//
// A user's number says little of a process in a container: root there may have no capability, and its own process and
// user namespaces. So a peer is asked whether it has the rights of this very process. Functions; thread-safe.
// Sources: unix(7), capabilities(7), pid_namespaces(7), user_namespaces(7), proc_pid_status(5).
#pragma once

#include <vector>

namespace escrow::api {

// No process has it (credentials(7)).
inline constexpr unsigned kNobodysId = static_cast<unsigned>(-1);

struct LocalPeer {
  unsigned uid = kNobodysId, gid = kNobodysId;
  std::vector<unsigned> groups;
  // Its process is in our user and PID namespaces and has every capability that this process has. False when that
  // cannot be found out, as of a process that has ended.
  bool has_our_rights = false;
};

// Of a connected socket. Nobody when the kernel does not say.
LocalPeer local_peer_of(int socket);

}  // namespace escrow::api
