// A request and its answer, as the handlers of the API see them: no socket, no library. Plain values.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "api/local_peer.h"
#include "api/received_body.h"

namespace escrow::api {

// What a request's content type may be to be kept in a file as the body of a PUT is.
inline constexpr std::string_view kTarType = "application/x-tar";

struct HttpRequest {
  std::string method;
  std::string target;  // path and query, percent-encoded; or "*"
  std::string content_type, last_event_id, prefer;
  std::optional<std::string> idempotency_key;  // nullopt: it has none, which is not an empty one
  std::string body;
  std::shared_ptr<const ReceivedBody> content;  // of a PUT or a tar archive, instead of the body
  std::string principal;  // whose token came with it, over TCP; empty: the peer is local, and the next names it
  std::string token;  // that one
  LocalPeer peer;         // of nobody over TCP
};

// Without its parameters: "text/plain" of "text/plain; charset=utf-8".
inline std::string media_type(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (type.ends_with(' ') || type.ends_with('\t')) type.remove_suffix(1);
  return std::string(type);
}

struct HttpResponse {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

inline HttpResponse json_answer(std::string body, unsigned status = 200) {
  return {.status = status, .content_type = "application/json", .body = std::move(body), .headers = {}};
}

// An answer that is not there yet: asked again every tenth of a second, without a thread that waits. The last time
// (`is_last`, the server is about to stop) it must answer.
using Poll = std::function<std::optional<HttpResponse>(bool is_last)>;

// An answer that comes in parts, of unknown length, if need be without an end: sent in chunks (RFC 9112, section 7.1).
// One part of it is in memory at a time: the next is asked for when the client has taken the one before.
struct Stream {
  HttpResponse head;  // status, content type and headers; its body is the first part
  struct Part {
    std::string bytes;  // at most some 64 KiB
    bool is_end = false;
  };
  // An empty part that is not the end says that nothing is there yet: asked again a tenth of a second later, without a
  // thread that waits. What it returns the last time (`is_last`, the server is about to stop) is the end. What it
  // throws breaks the answer off, so that no client takes it for whole.
  std::function<Part(bool is_last)> next;
};

using HttpReply = std::variant<HttpResponse, Poll, Stream>;

}  // namespace escrow::api
