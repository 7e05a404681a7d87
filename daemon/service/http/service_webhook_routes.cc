#include "daemon/service/http/service_webhook_routes.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "api/json_document.h"
#include "api/problem.h"
#include "api/resources.h"
#include "api/session_routes.h"
#include "daemon/service/http/service_requests.h"
#include "daemon/service/idempotency.h"

namespace escrow::daemon {

using api::Call;
using api::HttpReply;
using api::JsonObject;
using api::Problem;
using api::ProblemCode;
using api::json_answer;

namespace {

constexpr std::uint64_t kMaxDeliveriesPage = 1000;

void check_caller(const ServiceParts& parts, const Call& call) {
  check_operator(parts.config, caller_of(parts.config, call.request), "see the webhooks of the service and of its");
}

std::int64_t number_of(const std::string& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number > 0 ? number : 0;
}

HttpReply list_webhooks(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  check_caller(parts, call);
  std::vector<JsonObject> objects;
  for (const Webhooks::Status& status : parts.webhooks.list()) {
    JsonObject one;
    one.text("webhook", status.name).text("url", status.url);
    one.number("pending", static_cast<std::uint64_t>(status.pending));
    one.number("dead", static_cast<std::uint64_t>(status.dead));
    if (status.failing_since_s) one.time("failing_since", {*status.failing_since_s, 0});
    one.text("error", status.error);
    objects.push_back(std::move(one));
  }
  return json_answer(JsonObject().objects("webhooks", std::move(objects)).text() + "\n");
}

HttpReply dead(const ServiceParts& parts, Call& call) {
  const auto cursor = call.query.take("cursor");
  const std::optional<std::string> after = cursor ? api::decode_cursor(*cursor) : std::optional<std::string>("1");
  const std::size_t limit =
      std::max<std::uint64_t>(1, call.query.take_number("limit", kMaxDeliveriesPage).value_or(100));
  call.query.refuse_others();
  check_caller(parts, call);
  const std::int64_t number = after ? number_of(*after) : 0;
  if (number == 0) throw Problem(ProblemCode::invalid_value, "this is no cursor of this API", {{"field", "cursor"}});
  const auto letters = parts.webhooks.dead(call.parameters[0], cursor ? number : 0, limit);
  std::vector<JsonObject> objects;
  for (const auto& letter : letters) {
    JsonObject one;
    one.number("dead_letter", static_cast<std::uint64_t>(letter.number));
    one.number("id", static_cast<std::uint64_t>(letter.event)).text("type", letter.type);
    one.documents("data", {letter.document}).text("error", letter.error).time("time", {letter.time_s, 0});
    objects.push_back(std::move(one));
  }
  JsonObject json;
  json.objects("dead_letters", std::move(objects));
  if (letters.size() == limit) json.text("next", api::encode_cursor(std::to_string(letters.back().number)));
  return json_answer(json.text() + "\n");
}

HttpReply send_again(const ServiceParts& parts, Call& call) {
  call.query.refuse_others();
  api::read_nothing(call.request);
  check_caller(parts, call);
  parts.webhooks.send_again(call.parameters[0], number_of(call.parameters[1]));
  return json_answer(JsonObject().flag("taken", true).text() + "\n");
}

}  // namespace

void add_webhook_routes(api::Router& router, const ServiceParts& parts) {
  const auto bound = [&parts](HttpReply (*handler)(const ServiceParts&, Call&)) -> api::Router::Handler {
    return [parts, handler](Call& call) { return handler(parts, call); };
  };
  router.add("GET", "/v1/webhooks", bound(list_webhooks));
  router.add("GET", "/v1/webhooks/{webhook}/dead", bound(dead));
  router.add("POST", "/v1/webhooks/{webhook}/dead/{letter}/send",
             idempotent(parts.store, parts.time, parts.config, bound(send_again)));
}

}  // namespace escrow::daemon
