// The part of service_requests that reads imports.
#include <functional>
#include <utility>

#include "api/json_document.h"
#include "api/problem.h"
#include "api/request_fields.h"
#include "daemon/service_requests.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;
using api::RequestFields;

namespace {

constexpr const char* kTerms[] = {"branch", "path_prefix", "message", "run_as", "image"};

api::JsonObject terms_of(const std::function<std::optional<std::string>(const char* name)>& text) {
  api::JsonObject terms;
  for (const char* name : kTerms) {
    if (const std::optional<std::string> value = text(name)) terms.text(name, *value);
  }
  return terms;
}

api::JsonObject terms_of(api::Query& query) {
  api::JsonObject terms = terms_of([&](const char* name) { return query.take(name); });
  api::JsonObject trigger;
  trigger.text("name", query.take("trigger").value_or(""));
  trigger.text("id", query.take("trigger_id").value_or(""));
  terms.object("trigger", std::move(trigger));
  const std::string approval = query.take("require_approval").value_or("false");
  if (approval != "true" && approval != "false") {
    throw Problem(ProblemCode::invalid_value, "\"require_approval\" is true or false",
                  {{"field", "require_approval"}});
  }
  terms.flag("require_approval", approval == "true");
  if (const auto expires = query.take_number("approval_expires_s", kMaxApproval_s)) {
    terms.number("approval_expires_s", *expires);
  }
  return terms;
}

api::JsonObject terms_of(RequestFields& fields) {
  api::JsonObject terms = terms_of([&](const char* name) { return fields.text(name); });
  if (std::optional<RequestFields> given = fields.object("trigger")) {
    api::JsonObject trigger;
    trigger.text("name", given->text("name").value_or(""));
    trigger.text("id", given->text("id").value_or(""));
    given->refuse_others();
    terms.object("trigger", std::move(trigger));
  }
  terms.flag("require_approval", fields.flag("require_approval").value_or(false));
  if (const auto expires = fields.number("approval_expires_s", 1, kMaxApproval_s)) {
    terms.number("approval_expires_s", *expires);
  }
  return terms;
}

std::string source_of(RequestFields& fields) {
  std::string source = fields.required_text("source");
  if (!source.starts_with('/') || source.find('\0') != std::string::npos) {
    fields.refuse("source", "is not an absolute path");
  }
  return source;
}

}  // namespace

Importing read_importing(api::Call& call) {
  Importing importing;
  api::JsonObject terms;
  const std::string type = api::media_type(call.request.content_type);
  if (type == api::kTarType) {
    terms = terms_of(call.query);
  } else if (type == "application/json") {
    RequestFields fields(call.request.body, "the request");
    importing.source = source_of(fields);
    terms = terms_of(fields);
    fields.refuse_others();
  } else {
    throw Problem(ProblemCode::unsupported_media_type,
                  "the body is '" + call.request.content_type +
                      "'; send a tar archive, Content-Type: application/x-tar, or the \"source\" as application/json");
  }
  call.query.refuse_others();
  terms.text("repository", call.parameters[0]);
  // From here on as the body of an opening has them.
  api::HttpRequest opening;
  opening.content_type = "application/json";
  opening.body = terms.text();
  opening.target = call.request.target;
  opening.idempotency_key = call.request.idempotency_key;
  importing.opening = read_opening(opening);
  return importing;
}

}  // namespace escrow::daemon
