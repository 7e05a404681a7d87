// A session's verbs in HTTP, on the client's side: what escrowd and the hosts of sessions are asked alike, and what
// they answer. The server's side is session_routes.h.
//
// Pure functions. Members of an answer that are not known are ignored, so that a client may be older than its server.
#pragma once

#include <string>
#include <string_view>

#include "api/http_message.h"
#include "api/problem.h"
#include "api/protocol.h"
#include "session/base/ids.h"

namespace escrow::api {

struct SessionRequestLine {
  std::string method, target;  // percent-encoded
  std::string json;            // the body; empty: none
};
// The content of a WriteFileRequest is not in it. Throws Error{bad_request} for what no target can say.
SessionRequestLine call_of(const session::SessionId& id, const Request& request);

// Of a diff, its end: the text went elsewhere. Throws the Problem that was answered, but a commit's conflicts are its
// answer; Error{bad_request} for what is no answer.
Answer answer_of(const Request& request, HttpResponse response);

// Whether a request was refused.
bool is_refused(const HttpResponse& response);
// With what. Throws Error{unavailable} where it is no problem's document that was answered.
Problem problem_of(const HttpResponse& response);
// The value of a header; "": there is none.
std::string header_of(const HttpResponse& response, std::string_view name);

}  // namespace escrow::api
