// The part of service_requests that reads imports.
#include <functional>
#include <utility>

#include "api/json_document.h"
#include "api/problem.h"
#include "api/request_fields.h"
#include "daemon/service/http/service_requests.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;
using api::RequestFields;

namespace {

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
  ServiceSessions::OpenRequest& opening = importing.opening;
  opening.repository = call.parameters[0];
  opening.session.symlinks = "contained";
  if (call.request.idempotency_key) opening.request_key = call.request.target + " " + *call.request.idempotency_key;
  const std::string type = api::media_type(call.request.content_type);
  if (type == api::kTarType) {
    read_session_request(call.query, opening.session);
  } else if (type == "application/json") {
    RequestFields fields(call.request.body, "the request");
    importing.source = source_of(fields);
    read_session_request(fields, opening.session, {RequestPart::commit});
    fields.refuse_others();
  } else {
    throw Problem(ProblemCode::unsupported_media_type,
                  "the body is '" + call.request.content_type +
                      "'; send a tar archive, Content-Type: application/x-tar, or the \"source\" as application/json");
  }
  call.query.refuse_others();
  return importing;
}

}  // namespace escrow::daemon
