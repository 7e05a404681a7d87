// HTTP/1.1 on a Unix stream socket and, if asked, on a TCP port. One thread moves bytes, a bounded number of threads
// run the handler.
//
// A peer on the Unix socket is a local user whom the kernel names; who may connect is decided by the socket's mode
// (0660) and group. A peer over TCP proves who it is with each request's token, before its body is read.
// A client costs one descriptor and what it has sent so far: requests are bounded in size and time, connections in
// number and idleness. Of an answer in parts one is in memory, and of a content (the body of a PUT, or a tar archive)
// one piece: the rest is in a file, and contents together leave room on its disk (content_room.h).
// What is wrong with a request is answered as a problem (problem.h) before the connection closes. Every problem has an
// id and a line in the log (refusal.h), whoever says it.
// Thread-safe. Throws Error{unavailable} when it cannot listen. Sources: RFC 9110, RFC 9112, RFC 6750, unix(7).
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/http_message.h"
#include "session/base/log.h"

namespace escrow::api {

class HttpServer {
 public:
  struct Tcp {
    std::string address;           // numeric ADDRESS:PORT; empty: no TCP
    std::string certificate, key;  // PEM files; empty: without TLS
    // Of a bearer token; empty: nobody's. Called on the thread that moves bytes.
    std::function<std::string(std::string_view token)> principal_of_token;
  };
  struct Options {
    std::string socket;  // absolute
    int given_socket = -1;  // that listens there already, and goes on when the server has gone; -1: it makes its own
    std::string group;   // that may connect; empty: this process's
    std::size_t max_body_bytes = std::size_t{1} << 20;
    // Where contents are kept while they come, and what is too large for one.
    std::string content_directory = "/tmp";
    std::uint64_t max_content_bytes = std::uint64_t{1} << 30;
    // Asked on a worker before any of a content is read, with all else of the request and the length, if it is known.
    // A response refuses the request, and is its answer. Without this function all contents are taken.
    std::function<std::optional<HttpResponse>(const HttpRequest&, std::optional<std::uint64_t> length)> admit;
    std::size_t max_header_bytes = 16 * 1024;
    // On the socket, and as many over TCP. When another one comes, the oldest of those that say nothing is closed, of
    // whoever has the most of them.
    std::size_t max_connections = 2048;
    std::chrono::milliseconds idle_timeout{60'000};     // between requests
    std::chrono::milliseconds request_timeout{30'000};  // from a request's first byte to its last, and for an answer
    unsigned threads = 16;
    // Paths (without a query) whose requests have a thread of their own, a group each: they are answered while all the
    // others wait.
    std::vector<std::vector<std::string>> apart;
    // Told of an answer that the handler did not give: a request that could not be read, or of nobody. May be empty.
    std::function<void(unsigned status)> on_refusal;
    Tcp tcp;
  };
  // Must not throw.
  using Handler = std::function<HttpReply(const HttpRequest&)>;

  // Listens from here on. A socket that a dead server left behind is replaced, one that answers is not.
  HttpServer(const Options& options, Handler handler, session::Log& log);
  // Accepts and reads nothing more, lets every request that was read be answered and every stream say its last part,
  // removes the socket if it made it.
  ~HttpServer();

  // From the next request on the limits and times of `options`, from the next connection on its certificate; nothing
  // else of it counts. Throws Error{bad_request} for files that cannot be used, and then changes nothing.
  void change(const Options& options);

  struct Impl;  // of its .cc files alone

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace escrow::api
