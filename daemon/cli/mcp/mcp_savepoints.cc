// The tools that keep a moment of a session, and go back to it.
#include "api/json_document.h"
#include "daemon/cli/mcp/mcp_sessions.h"

namespace escrow::daemon {

using api::JsonObject;
using api::McpAnswer;
using api::RequestFields;

namespace {

std::vector<std::string> names_of(const api::SavepointsAnswer& answer) {
  std::vector<std::string> names;
  for (const api::SavepointsAnswer::Savepoint& one : answer.savepoints) names.push_back(one.name);
  return names;
}

}  // namespace

McpAnswer mcp_savepoint(const McpSettings& settings, RequestFields& fields) {
  const api::SavepointRequest request{.verb = api::SavepointVerb::create, .name = fields.required_text("name")};
  McpSessions sessions(settings);
  const session::SessionRecord record = sessions.find(fields);
  fields.refuse_others();
  const api::SavepointsAnswer answer = sessions.access(record).savepoint(request);
  return {.document = JsonObject().text("session", record.id.text()).texts("savepoints", names_of(answer)).text(),
          .texts = {}};
}

McpAnswer mcp_restore(const McpSettings& settings, RequestFields& fields) {
  const api::SavepointRequest request{.verb = api::SavepointVerb::restore, .name = fields.required_text("name")};
  McpSessions sessions(settings);
  const session::SessionRecord record = sessions.find(fields);
  fields.refuse_others();
  const api::SavepointsAnswer answer = sessions.access(record).savepoint(request);
  JsonObject document;
  document.text("session", record.id.text()).texts("savepoints", names_of(answer)).text("undo", answer.undo);
  document.text("next", "the session is as it was at '" + request.name + "'; what it was before that is savepoint '" +
                            answer.undo + "'");
  if (!answer.warning.empty()) document.text("warning", answer.warning);
  return {.document = document.text(), .texts = {}};
}

}  // namespace escrow::daemon
