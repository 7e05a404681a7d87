// The host process of a session that escrowd mounts: it has the session, its mount and its control socket, and answers
// every request on it. Neither a restart of escrowd nor its death disturbs it. When its session was ended or
// unmounted, by anybody, the host waits for the next order of the escrowd that started it, and ends with that escrowd.
#pragma once

#include <string>
#include <string_view>

#include "api/protocol.h"
#include "daemon/host/hidden_git.h"
#include "session/base/ids.h"

namespace escrow::daemon {

// The argument that makes of escrowd's own program such a host: nothing for people to type.
inline constexpr const char* kMountHostArgument = "mount-host";

// An order of escrowd: to mount an open session that nobody holds.
struct MountOrder {
  std::string repository;  // its path
  bool verbose = false;
  session::SessionId id;
  std::string mountpoint;
  std::string mount_options;  // http/request_options.h
  GitViewer viewer;
};
std::string encode(const MountOrder& order);
MountOrder decode_mount_order(std::string_view bytes);
std::string encode(const api::IoView& io);
api::IoView decode_io(std::string_view bytes);

// The whole process, over the channel that it was started with.
int run_mount_host();

}  // namespace escrow::daemon
