// HTTP/1.1 messages over a control socket (control_socket.h), read with a deadline and without a thread of their own,
// and written. Only for the .cc files of api/. Sources: RFC 9112, unix(7).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "api/control_socket.h"
#include "api/http_message.h"
#include "api/protocol.h"
#include "api/session_calls.h"

namespace escrow::api {

inline constexpr std::size_t kMaxRequestBytes = 16u << 20;   // of a body but a file's content
inline constexpr std::string_view kHealthTarget = "/v1/health";  // answered at once, whatever else a host is doing

// Why there is no message.
enum class NoMessage { closed, unread, too_slow, too_long, malformed };

// Requests to a host, one after the other.
class RequestReader {
 public:
  // Contents that do not come as a descriptor are kept in a file of no name there while they come.
  RequestReader(int socket, const std::string& content_directory);
  ~RequestReader();

  struct Request {
    HttpRequest http;        // its content: the body of a PUT, or the descriptor beside it
    std::string speaks_for;  // the principal that it is made for; empty: the peer's own user
    bool is_last = false;    // the connection ends with its answer
  };
  // The whole of it has `patience` to arrive, a content for each of its parts.
  std::optional<Request> next(std::chrono::milliseconds patience);
  NoMessage end() const noexcept { return end_; }

 private:
  const int socket_;
  const std::string content_directory_;
  std::string pending_;
  NoMessage end_ = NoMessage::closed;
};

// The answer of a host to one request.
class ResponseReader {
 public:
  // What a request that was granted is answered goes to `on_part` as it comes, where there is one.
  explicit ResponseReader(int socket, std::function<void(std::string_view)> on_part = {});
  ~ResponseReader();

  // nullopt: no byte came within `patience`, and it may be called again; or no more will come.
  std::optional<HttpResponse> next(std::chrono::milliseconds patience);
  NoMessage end() const noexcept { return end_; }
  // Something of it has come.
  bool has_begun() const noexcept { return has_begun_; }

 private:
  struct Parser;
  const int socket_;
  std::string pending_;
  std::unique_ptr<Parser> parser_;
  NoMessage end_ = NoMessage::closed;
  bool has_begun_ = false;
};

std::string to_bytes(const SessionRequestLine& request, const std::string& speaks_for);
// With its body; or the head of one that comes in chunks.
std::string to_bytes(const HttpResponse& response, bool is_chunked);
std::string chunk_of(std::string_view bytes);  // of none: the last one

}  // namespace escrow::api
