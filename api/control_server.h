// Serves requests to a session's host process on <session directory>/control.sock: a Unix stream socket of mode 0600,
// one JSON document per line each way.
//
// One thread accepts, one thread serves each connection, up to a limit; a client that is slow or sends nonsense costs
// its own connection only. Peers are checked with SO_PEERCRED (unix(7)): the same user, or root. Requests over
// kMaxRequestBytes are refused. Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "api/protocol.h"
#include "session/base/log.h"

namespace escrow::api {

inline constexpr std::size_t kMaxRequestBytes = 16u << 20;

struct Peer {
  uid_t uid;
  gid_t gid;
  pid_t pid;
  std::string speaks_for;  // the principal that the request is made for; empty: the peer's own user
};

class ControlServer {
 public:
  // May throw Error, which becomes an ErrorAnswer. `send_part` sends an answer ahead of the returned one.
  using SendPart = std::function<void(const Answer&)>;
  using Handler = std::function<Answer(const Request& request, const Peer& peer, const SendPart& send_part)>;

  // Listens from here on; replaces a socket that a dead host left behind (the caller holds the session's lock).
  ControlServer(const std::string& directory, Handler handler, session::Log& log);
  // Refuses new requests, waits for those under way to be answered (not for slow readers), removes the socket.
  // Must not be called from a handler.
  ~ControlServer();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace escrow::api
