// A request and its answer, as the handlers of the API see them: no socket, no library. Plain values.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace escrow::api {

struct HttpRequest {
  std::string method;
  std::string target;  // as it came: path and query, percent-encoded
  std::string content_type, idempotency_key;
  std::string body;
  unsigned uid = 0, gid = 0;  // of the peer, told by the kernel (SO_PEERCRED, unix(7))
};

struct HttpResponse {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

// An answer that is not there yet: asked again every tenth of a second, without a thread that waits. The last time
// (`is_last`, the server is about to stop) it must answer.
using Poll = std::function<std::optional<HttpResponse>(bool is_last)>;

using HttpReply = std::variant<HttpResponse, Poll>;

}  // namespace escrow::api
