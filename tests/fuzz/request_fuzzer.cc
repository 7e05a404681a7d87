// Any bytes as a request to escrowd, from the router to the fields of its body: each is answered by what it asked for,
// or by a problem that is the caller's own fault, and never by `internal`.
//
// The input is a line with method and target, a line with the content type, and the body.
#include <cstdlib>
#include <string>
#include <string_view>
#include <variant>

#include "api/http_message.h"
#include "api/problem.h"
#include "api/router.h"
#include "api/session_routes.h"
#include "daemon/service/http/service_requests.h"

namespace {

using escrow::api::Call;
using escrow::api::HttpReply;
using escrow::api::HttpRequest;
using escrow::api::HttpResponse;

void expect(bool condition) {
  if (!condition) std::abort();
}

std::string take_line(std::string_view& text, char end) {
  const std::size_t length = std::min(text.find(end), text.size());
  std::string line(text.substr(0, length));
  text.remove_prefix(std::min(length + 1, text.size()));
  return line;
}

// What the service's routes read of a request, without a service behind them.
template <typename Read>
escrow::api::Router::Handler reading(Read read) {
  return [read](Call& call) -> HttpReply {
    read(call);
    return HttpResponse{};
  };
}

escrow::api::Router make_router() {
  namespace daemon = escrow::daemon;
  escrow::api::Router router;
  router.add("GET", "/v1/sessions", reading([](Call& call) { daemon::read_filter(call.query); }));
  router.add("GET", "/v1/sessions/{session}", reading([](Call& call) { call.query.refuse_others(); }));
  router.add("GET", "/v1/repositories/{repository}/log", reading([](Call& call) {
               call.query.take("branch");
               call.query.take_number("limit", 1000);
               call.query.refuse_others();
             }));
  router.add("POST", "/v1/repositories/{repository}/imports",
             reading([](Call& call) { daemon::read_importing(call); }));
  const auto post = [&router](const char* pattern, auto read) {
    router.add("POST", pattern, reading([read](Call& call) { read(call.request); }));
  };
  post("/v1/sessions", [](const HttpRequest& request) { daemon::read_open_request(request); });
  post("/v1/repositories", [](const HttpRequest& request) { daemon::read_registering(request); });
  post("/v1/sessions/{session}/finish", [](const HttpRequest& request) {
    const daemon::ServiceSessions::FinishRequest ending = daemon::read_finish_request(request);
    expect(ending.reason != escrow::session::Reason::success || ending.exit_code == 0);
  });
  post("/v1/sessions/{session}/approve", [](const HttpRequest& request) { daemon::read_approving(request); });
  post("/v1/sessions/{session}/reject", [](const HttpRequest& request) { daemon::read_rejecting(request); });
  post("/v1/sessions/{session}/mount", [](const HttpRequest& request) { daemon::read_mounting(request); });
  post("/v1/sessions/{session}/unmount", [](const HttpRequest& request) { escrow::api::read_nothing(request); });
  post("/v1/sessions/{session}/commit", [](const HttpRequest& request) { daemon::read_commit_request(request); });
  post("/v1/sessions/{session}/rollback", [](const HttpRequest& request) { escrow::api::read_rollback(request); });
  return router;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static const escrow::api::Router router = make_router();
  std::string_view text(reinterpret_cast<const char*>(data), size);
  HttpRequest request;
  request.method = take_line(text, ' ');
  request.target = take_line(text, '\n');
  request.content_type = take_line(text, '\n');
  request.body = text;
  // As the host of a session reads it.
  try {
    escrow::api::read_session_call(request);
  } catch (const escrow::api::Problem& problem) {
    expect(escrow::api::kind_of(problem.problem()).status < 500);
  }
  const HttpReply reply = router.answer(request);
  const auto* response = std::get_if<HttpResponse>(&reply);
  expect(response != nullptr && response->status < 500);
  expect(response->status < 400 || response->content_type == "application/problem+json");
  return 0;
}
