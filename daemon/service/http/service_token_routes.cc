#include "daemon/service/http/service_token_routes.h"

#include <utility>

#include "api/json_document.h"
#include "api/problem.h"
#include "api/resources.h"
#include "daemon/service/http/service_requests.h"
#include "daemon/service/idempotency.h"
#include "daemon/service/service_tokens.h"

namespace escrow::daemon {

using api::Call;
using api::HttpReply;
using api::HttpResponse;
using api::JsonObject;
using api::json_answer;

namespace {

JsonObject json_of(const ServiceTokens::Token& token) {
  JsonObject json;
  json.text("token", token.id).text("principal", token.principal).text("note", token.note);
  json.text("created_by", token.created_by).time("created", {token.created_s, 0});
  json.time("expires", {token.expires_s, 0});
  json.text("state", !token.ended_s ? "valid" : token.ended_by.empty() ? "expired" : "revoked");
  if (token.ended_s) json.time("ended", {*token.ended_s, 0}).text("ended_by", token.ended_by);
  return json;
}

HttpReply create(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  const ServiceTokens::Wanted wanted = read_token_request(call.request);
  const ServiceTokens::Made made = parts.tokens.create(caller_of(parts.config, call.request), wanted);
  JsonObject json = json_of(made.token);
  if (!made.secret.empty()) json.text("secret", made.secret);
  HttpResponse response = json_answer(json.text() + "\n", 201);
  response.headers = {{"Location", "/v1/tokens/" + made.token.id}};
  return response;
}

HttpReply list_tokens(const ServiceParts& parts, Call& call) {
  const ServiceTokens::Filter filter = read_token_filter(call.query);
  const auto tokens = parts.tokens.list(caller_of(parts.config, call.request), filter);
  JsonObject json;
  std::vector<JsonObject> objects;
  for (const ServiceTokens::Token& token : tokens) objects.push_back(json_of(token));
  json.objects("tokens", std::move(objects));
  if (tokens.size() == filter.limit) json.text("next", api::encode_cursor(std::to_string(tokens.back().number)));
  return json_answer(json.text() + "\n");
}

HttpReply show(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  const ServiceTokens::Token token = parts.tokens.find(caller_of(parts.config, call.request), call.parameters[0]);
  return json_answer(json_of(token).text() + "\n");
}

HttpReply revoke(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  const ServiceTokens::Token token = parts.tokens.revoke(caller_of(parts.config, call.request), call.parameters[0]);
  return json_answer(json_of(token).text() + "\n");
}

}  // namespace

void add_token_routes(api::Router& router, const ServiceParts& parts) {
  const auto bound = [&parts](HttpReply (*handler)(const ServiceParts&, Call&)) -> api::Router::Handler {
    return [parts, handler](Call& call) { return handler(parts, call); };
  };
  router.add("POST", "/v1/tokens", idempotent(parts.store, parts.time, parts.config, bound(create)));
  router.add("GET", "/v1/tokens", bound(list_tokens));
  router.add("GET", "/v1/tokens/{token}", bound(show));
  router.add("DELETE", "/v1/tokens/{token}", bound(revoke));
}

}  // namespace escrow::daemon
