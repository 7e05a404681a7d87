#include "api/local_peer.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "api/control_socket.h"

namespace escrow::api {

namespace {

#ifndef SO_PEERPIDFD
constexpr int SO_PEERPIDFD = 77;  // since Linux 6.5 (asm-generic/socket.h)
#endif

// Of the very process that connected; before Linux 6.5 of the one that has its number now, a moment later.
Descriptor descriptor_of(int socket, pid_t pid) {
  int descriptor = -1;
  socklen_t size = sizeof descriptor;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &descriptor, &size) == 0) return Descriptor(descriptor);
  if (errno != ENOPROTOOPT) return Descriptor(-1);
  return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

bool lives(const Descriptor& process) {
  pollfd ended{process.get(), POLLIN, 0};
  return ::poll(&ended, 1, 0) == 0;
}

struct Rights {
  std::uint64_t capabilities = 0;
  dev_t device = 0;
  ino_t user_namespace = 0, pid_namespace = 0;

  bool include(const Rights& others) const {
    return device == others.device && user_namespace == others.user_namespace &&
           pid_namespace == others.pid_namespace && (others.capabilities & ~capabilities) == 0;
  }
};

// `process` is its number, or "self".
std::optional<Rights> rights_of(const std::string& process) {
  const std::string directory = "/proc/" + process;
  struct stat user {}, pid {};
  if (::stat((directory + "/ns/user").c_str(), &user) != 0 || ::stat((directory + "/ns/pid").c_str(), &pid) != 0) {
    return std::nullopt;
  }
  Rights rights{.device = user.st_dev, .user_namespace = user.st_ino, .pid_namespace = pid.st_ino};
  std::ifstream status(directory + "/status");
  for (std::string line; std::getline(status, line);) {
    static constexpr std::string_view kName = "CapEff:";
    if (!line.starts_with(kName)) continue;
    std::istringstream text(line.substr(kName.size()));
    if (text >> std::hex >> rights.capabilities) return rights;
  }
  return std::nullopt;
}

bool has_our_rights(int socket, pid_t pid) {
  // 0: of a PID namespace that is not below ours.
  if (pid <= 0) return false;
  const Descriptor process = descriptor_of(socket, pid);
  if (process.get() < 0) return false;
  const std::optional<Rights> theirs = rights_of(std::to_string(pid)), ours = rights_of("self");
  // As long as it lives, its number is nobody else's: what was read was its own.
  return theirs && ours && theirs->include(*ours) && lives(process);
}

}  // namespace

LocalPeer local_peer_of(int socket) {
  LocalPeer peer;
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return peer;
  peer.uid = credentials.uid;
  peer.gid = credentials.gid;
  size = 0;  // without room the kernel says how much they take
  ::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, nullptr, &size);
  peer.groups.resize(size / sizeof peer.groups.front());
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, peer.groups.data(), &size) != 0) peer.groups.clear();
  const bool has_our_user = peer.uid == ::geteuid() || peer.uid == 0;
  peer.has_our_rights = has_our_user && has_our_rights(socket, credentials.pid);
  return peer;
}

}  // namespace escrow::api
