// Serves requests to a session's host process on <session directory>/control.sock: a Unix stream socket of mode 0600,
// HTTP/1.1 with the routes and documents of session_routes.h. A content may come as a descriptor beside its PUT.
//
// One thread accepts, one thread serves each connection, up to a limit; a client that is slow or sends nonsense costs
// its own connection only. Peers are checked with SO_PEERCRED (unix(7)): the same user, or root; whom they ask for they
// say themselves ("Escrow-Principal"). A body over 16 MiB that is no file's content is refused. A request whose asker
// has closed the connection is not given to the handler. Thread-safe.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "api/protocol.h"
#include "session/base/log.h"

namespace escrow::api {

struct Peer {
  uid_t uid;
  gid_t gid;
  pid_t pid;
  std::string speaks_for;  // the principal that the request is made for; empty: the peer's own user
  std::string session;     // the id that the request is about, as it says
  // Whether the peer has closed the connection; to be asked before a request that had to wait begins. Empty: never.
  std::function<bool()> has_gone{};
};

class ControlServer {
 public:
  // May throw Error, which is answered as a problem. `send_part` sends the beginning and the parts of a diff ahead of
  // the answer that is returned.
  using SendPart = std::function<void(const Answer&)>;
  using Handler = std::function<Answer(const Request& request, const Peer& peer, const SendPart& send_part)>;
  // The session as it is now, for answers that are its document.
  using About = std::function<SessionView()>;

  // Listens from here on; replaces a socket that a dead host left behind (the caller holds the session's lock).
  ControlServer(const std::string& directory, Handler handler, About about, session::Log& log);
  // Refuses new requests, waits for those under way to be answered (not for slow readers), removes the socket.
  // Must not be called from a handler.
  ~ControlServer();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace escrow::api
