// What a request's header must be so that no proxy in front reads it another way than this server: the rules of HTTP
// that Beast leaves to the server. Only for the .cc files of api/.
//
// Functions; thread-safe. Sources: RFC 9112, sections 3.2 (Host, forms of a target), 6.1 and 6.3 (how long a body is);
// RFC 9110, sections 5.3 (fields that come once), 9.1 (methods), 10.1.1 (Expect).
#pragma once

#include <boost/beast/http/message.hpp>
#include <optional>
#include <string>

#include "api/problem.h"

namespace escrow::api {

// Of the header alone: what a trailer says later counts for nothing.
struct RequestHead {
  std::string method, target;  // the target in origin form: "/path?query", or "*"
  std::string content_type, last_event_id, prefer;
  std::optional<std::string> idempotency_key;
  bool is_content = false;        // its body is kept in a file (http_message.h)
  bool expects_continue = false;  // it has a body, and waits for 100 (Continue)
  bool knows_chunks = true;       // HTTP/1.1
};

// Throws Problem: the connection cannot be used any more then, because nobody knows where the next request begins.
RequestHead read_head(const boost::beast::http::request_header<>& header);

}  // namespace escrow::api
