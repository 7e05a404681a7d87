#include "daemon/service/idempotency.h"

#include <algorithm>
#include <utility>

#include "api/problem.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;
using storage::ServiceStore;

namespace {

constexpr std::size_t kMaxKey = 255;

void check_key(const std::string& key) {
  const auto is_visible = [](char letter) { return letter >= 0x21 && letter <= 0x7e; };
  if (!key.empty() && key.size() <= kMaxKey && std::all_of(key.begin(), key.end(), is_visible)) return;
  throw Problem(ProblemCode::malformed_request, "the Idempotency-Key is not 1 to 255 visible characters of ASCII");
}

// Carries the request out under its claim, which is given back unless the answer was kept.
api::HttpResponse carry_out(ServiceStore& store, const ServiceStore::Request& request, api::Call& call,
                            const api::Router::Handler& handler) {
  api::HttpResponse response;
  try {
    response = std::get<api::HttpResponse>(handler(call));
  } catch (...) {
    response = api::problem_of_current_exception();
  }
  const ServiceStore::Answer answer{.status = response.status,
                                    .content_type = response.content_type,
                                    .body = response.body,
                                    .headers = response.headers};
  // Who was told to come back for its answer finds it, whatever it is.
  if (answer.is_final() || (call.was_left && call.was_left())) {
    store.record(request, answer);
  } else {
    store.release(request);
  }
  return response;
}

}  // namespace

api::Router::Handler idempotent(ServiceStore& store, const ServiceTime& time, const LiveConfig& config,
                                api::Router::Handler handler) {
  return [&store, &time, &config, handler = std::move(handler)](api::Call& call) -> api::HttpReply {
    if (!call.request.idempotency_key) return handler(call);
    const std::string& key = *call.request.idempotency_key;
    check_key(key);
    // The route as it was asked for: the same key on another session is another request.
    const ServiceStore::Request request{.principal = caller_of(config, call.request).principal,
                                        .route = call.request.method + " " + call.request.target,
                                        .key = key,
                                        .body = call.request.body,
                                        .content = call.request.content.get()};
    ServiceStore::Answer kept;
    switch (store.claim(request, time.now_ms() / 1000, kept)) {
      case ServiceStore::Claim::granted:
        return carry_out(store, request, call, handler);
      case ServiceStore::Claim::in_flight:
        throw Problem(ProblemCode::idempotency_in_flight,
                      "the first request with this Idempotency-Key is not answered yet; try again");
      case ServiceStore::Claim::other_body:
        throw Problem(ProblemCode::idempotency_key_reused,
                      "this Idempotency-Key was used for a request with another body; choose a new one");
      case ServiceStore::Claim::answered:
        break;
    }
    return api::HttpResponse{.status = kept.status,
                             .content_type = std::move(kept.content_type),
                             .body = std::move(kept.body),
                             .headers = std::move(kept.headers)};
  };
}

}  // namespace escrow::daemon
