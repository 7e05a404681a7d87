#include "daemon/service/http/service_upkeep_routes.h"

#include <utility>

#include "api/problem.h"
#include "api/resources.h"
#include "api/session_routes.h"
#include "daemon/service/http/service_requests.h"
#include "daemon/service/idempotency.h"
#include "daemon/service/upkeep_process.h"

namespace escrow::daemon {

using api::Call;
using api::HttpReply;
using api::Problem;
using api::ProblemCode;
using api::json_answer;

namespace {

constexpr ConcurrencyLimit::Number kMaxAtOnce{.all = 2, .of_one = 2};  // of each kind: they read whole repositories

HttpReply audit(const ServiceParts& parts, Call& call) {
  const ServiceSessions::AuditPage page =
      parts.sessions.audit(caller_of(parts.config, call.request), call.parameters[0], read_audit_wanted(call.query));
  return json_answer(api::to_json(page.entries, page.next.empty() ? "" : api::encode_cursor(page.next)));
}

// What reads or rewrites a whole repository is not for everybody. Before a turn of `handler` is taken.
api::Router::Handler for_operators(const ServiceParts& parts, const std::string& verb, api::Router::Handler handler) {
  return [parts, verb, handler = std::move(handler)](Call& call) -> HttpReply {
    call.query.refuse_others();
    api::read_nothing(call.request);
    check_operator(parts.config, caller_of(parts.config, call.request), verb);
    return handler(call);
  };
}

HttpReply gc(const ServiceParts& parts, Call& call) {
  return json_answer(upkeep_apart(kGcVerb, parts.repositories.find(call.parameters[0]).path, parts.stopping,
                                  parts.config->retention.sessions_s));
}

HttpReply verify_repository(const ServiceParts& parts, Call& call) {
  return json_answer(upkeep_apart(kVerifyVerb, parts.repositories.find(call.parameters[0]).path, parts.stopping));
}

}  // namespace

void add_upkeep_routes(api::Router& router, const ServiceParts& parts) {
  const auto bound = [&parts](HttpReply (*handler)(const ServiceParts&, Call&)) -> api::Router::Handler {
    return [parts, handler](Call& call) { return handler(parts, call); };
  };
  const auto get = [&](const char* pattern, auto handler) { router.add("GET", pattern, bound(handler)); };
  const auto post_long = [&](const char* pattern, const char* verb, auto handler) {
    router.add("POST", pattern,
               parts.long_verbs.apart(
                   idempotent(parts.store, parts.time, parts.config,
                              for_operators(parts, verb, at_most(kMaxAtOnce, parts.config, bound(handler))))));
  };
  get("/v1/repositories/{repository}/audit", audit);
  post_long("/v1/repositories/{repository}/gc", "clean up", gc);
  post_long("/v1/repositories/{repository}/verify", "verify", verify_repository);
}

}  // namespace escrow::daemon
