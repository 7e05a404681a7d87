#include "api/control_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "api/control_messages.h"
#include "api/control_socket.h"
#include "api/problem.h"
#include "api/session_routes.h"
#include "session/base/synchronized.h"

namespace escrow::api {

using session::Errc;
using session::Error;
using session::LogLevel;
using namespace std::chrono_literals;

namespace {

constexpr std::chrono::milliseconds kRequestPatience = 10s;  // for one whole request to arrive
constexpr std::chrono::milliseconds kIdlePatience = 60s;     // between requests on one connection
constexpr std::chrono::milliseconds kAnswerPatience = 5s;    // for a client to take some of its answer
constexpr std::size_t kMaxConnections = 128;

std::string refusal(ProblemCode code, const std::string& why) {
  return to_bytes(problem_response(Problem(code, why)), false);
}

Descriptor listen_on(const std::string& directory) {
  const ControlAddress at(directory);
  if (at.error != 0) {
    throw Error(Errc::unavailable,
                "cannot reach the session's directory " + directory + ": " + std::strerror(at.error));
  }
  Descriptor listener = make_socket();
  unlinkat(at.directory_fd.get(), "control.sock", 0);
  // The mode is there before anybody can connect: umask is the process's, fchmod on the unbound socket is inherited.
  if (fchmod(listener.get(), 0600) != 0 ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&at.address), sizeof at.address) != 0 ||
      listen(listener.get(), 64) != 0) {
    throw Error(Errc::unavailable, "cannot listen on " + directory + "/control.sock: " + std::strerror(errno));
  }
  return listener;
}

}  // namespace

struct ControlServer::Impl {
  struct Connection {
    Descriptor socket;
    std::thread thread;
    bool done = false;
  };
  struct Connections {
    std::list<Connection> all;
    bool stopping = false;
  };

  Impl(const std::string& directory_path, Handler request_handler, About about_session, session::Log& to)
      : directory(directory_path),
        handler(std::move(request_handler)),
        about(std::move(about_session)),
        log(to),
        listener(listen_on(directory_path)),
        wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (wake.get() < 0) {
      throw Error(Errc::unavailable, std::string("cannot make an event descriptor: ") + std::strerror(errno));
    }
    acceptor = std::thread([this] { accept_until_stopped(); });
  }

  ~Impl() {
    {
      auto held = connections.lock();
      held->stopping = true;
      // No further request is read; an answer under way is still sent.
      for (Connection& connection : held->all) shutdown(connection.socket.get(), SHUT_RD);
    }
    std::list<Connection> ending;
    while (take_one(ending)) {
    }
    // Those that wait for it are told by the acceptor that somebody is here.
    for (Connection& connection : ending) connection.thread.join();
    signal_wake();
    acceptor.join();
    unlink((directory + "/control.sock").c_str());
  }

  void signal_wake() const {
    const std::uint64_t one = 1;
    if (write(wake.get(), &one, sizeof one) < 0) log.write(LogLevel::warning, "cannot wake the control socket");
  }

  // Moves one connection out, so that its thread can be joined without the lock.
  bool take_one(std::list<Connection>& into) {
    auto held = connections.lock();
    if (held->all.empty()) return false;
    into.splice(into.end(), held->all, held->all.begin());
    return true;
  }

  void reap() {
    std::list<Connection> finished;
    {
      auto held = connections.lock();
      for (auto at = held->all.begin(); at != held->all.end();) {
        const auto next = std::next(at);
        if (at->done) finished.splice(finished.end(), held->all, at);
        at = next;
      }
    }
    for (Connection& connection : finished) connection.thread.join();
  }

  void accept_until_stopped() {
    while (true) {
      std::array<pollfd, 2> watched = {{{listener.get(), POLLIN, 0}, {wake.get(), POLLIN, 0}}};
      if (poll(watched.data(), watched.size(), 1000) < 0 && errno != EINTR) return;
      reap();
      if ((watched[1].revents & POLLIN) != 0) return;
      if ((watched[0].revents & POLLIN) == 0) continue;
      Descriptor accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (accepted.get() < 0) {
        // Out of descriptors: wait for some to come back rather than spin.
        if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(50ms);
        continue;
      }
      start(std::move(accepted));
    }
  }

  void start(Descriptor accepted) {
    auto held = connections.lock();
    if (held->stopping) return;  // closed unread, the request is made again of who has the session next
    if (held->all.size() >= kMaxConnections) {
      const char* const why = "the session's host has too many clients; try again";
      send_bytes(accepted.get(), refusal(ProblemCode::unavailable, why), 100ms);
      return;
    }
    Connection& connection = held->all.emplace_back();
    connection.socket = std::move(accepted);
    connection.thread = std::thread([this, &connection] { serve(connection); });
  }

  void serve(Connection& connection) {
    const int socket = connection.socket.get();
    try {
      converse(socket);
    } catch (const std::exception& error) {
      log.write(LogLevel::warning, std::string("control socket: ") + error.what());
    }
    shutdown(socket, SHUT_RDWR);
    mark_done(connection);
  }

  void mark_done(Connection& connection) {
    auto held = connections.lock();
    connection.done = true;
  }

  void converse(int socket) {
    ucred credentials{};
    socklen_t size = sizeof credentials;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return;
    if (credentials.uid != geteuid() && credentials.uid != 0) {
      send_bytes(socket, refusal(ProblemCode::forbidden, "the session belongs to another user"), 1s);
      return;
    }
    Peer peer{.uid = credentials.uid, .gid = credentials.gid, .pid = credentials.pid, .speaks_for = {}, .session = {},
              .has_gone = [socket] { return is_closed_by_peer(socket); }};
    RequestReader reader(socket, directory);
    bool first = true;
    while (std::optional<RequestReader::Request> request = reader.next(first ? kRequestPatience : kIdlePatience)) {
      first = false;
      peer.speaks_for = std::move(request->speaks_for);
      if (!reply(request->http, peer, socket) || request->is_last) return;
    }
    if (reader.end() == NoMessage::too_long) {
      send_bytes(socket, refusal(ProblemCode::body_too_large, "the request is longer than 16 MiB"), 1s);
    }
    if (reader.end() == NoMessage::malformed) {
      send_bytes(socket, refusal(ProblemCode::malformed_request, "this is no request of HTTP/1.1"), 1s);
    }
  }

  // An answer on its way: a diff comes in chunks once it has a part.
  struct Answering {
    int socket;
    std::uint64_t omitted = 0;
    bool is_begun = false, is_gone = false;

    void send(const std::string& bytes) {
      if (!is_gone && send_bytes(socket, bytes, kAnswerPatience)) return;
      is_gone = true;
      throw Error(Errc::unavailable, "the client went away in the middle of its answer");
    }
    void send_part(const Answer& part) {
      if (const auto* begin = std::get_if<DiffBegin>(&part)) omitted = begin->omitted;
      const auto* const text = std::get_if<DiffPart>(&part);
      if (text == nullptr || text->text.empty()) return;
      if (!std::exchange(is_begun, true)) send(to_bytes(diff_head(omitted), true));
      send(chunk_of(text->text));
    }
  };

  // Closed by the peer, and not only for what it sends.
  static bool is_closed_by_peer(int socket) {
    pollfd watched{socket, 0, 0};
    return poll(&watched, 1, 0) == 1 && (watched.revents & (POLLHUP | POLLERR)) != 0;
  }

  // The catch site of the control socket. False: the connection ends, as an answer that cannot be made whole does.
  bool reply(const HttpRequest& request, Peer peer, int socket) {
    // The asker has given up, for example because this process was stopped, and was told that nothing is done.
    if (is_closed_by_peer(socket)) {
      log.write(LogLevel::info, "control request " + request.method + " " + request.target +
                                    " is not carried out: who asked for it has gone");
      return false;
    }
    if (request.method == "GET" && request.target == kHealthTarget) {
      const HttpResponse health{.status = 200, .content_type = "application/json", .body = "{\"status\":\"ok\"}\n",
                                .headers = {}};
      return send_bytes(socket, to_bytes(health, false), kAnswerPatience);
    }
    Answering answering{.socket = socket};
    HttpResponse response;
    try {
      SessionCall call = read_session_call(request);
      peer.session = call.session;
      const Answer answer = handler(call.request, peer, [&](const Answer& part) { answering.send_part(part); });
      if (answering.is_begun) return send_bytes(socket, chunk_of({}), kAnswerPatience);
      response = response_of(call, answer, about);
    } catch (const std::exception& error) {
      const bool is_refusal = dynamic_cast<const Error*>(&error) != nullptr;
      log.write(is_refusal ? LogLevel::debug : LogLevel::error,
                "control request " + request.method + " " + request.target + ": " + error.what());
      if (answering.is_begun) return false;
      response = problem_of_current_exception();
    }
    return send_bytes(socket, to_bytes(response, false), kAnswerPatience);
  }

  const std::string directory;  // constant, as the next five
  const Handler handler;
  const About about;
  session::Log& log;
  const Descriptor listener;
  const Descriptor wake;
  session::Synchronized<Connections> connections;  // self-locking
  std::thread acceptor;
};

ControlServer::ControlServer(const std::string& directory, Handler handler, About about, session::Log& log)
    : impl_(std::make_unique<Impl>(directory, std::move(handler), std::move(about), log)) {}

ControlServer::~ControlServer() = default;

}  // namespace escrow::api
