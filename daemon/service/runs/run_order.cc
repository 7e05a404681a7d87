#include "daemon/service/runs/run_order.h"

#include <cassert>
#include <initializer_list>
#include <limits>

#include "api/json_document.h"
#include "api/protocol.h"
#include "api/request_fields.h"

namespace escrow::daemon {

namespace {

constexpr std::initializer_list<RequestPart> kWhole = {RequestPart::commit, RequestPart::asker, RequestPart::view,
                                                       RequestPart::mount};
constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();

}  // namespace

std::string encode(const RunOrder& order) {
  api::JsonObject session;
  write_session_request(session, order.session, kWhole);
  api::JsonObject body;
  body.text("id", order.id.text())
      .text("repository", order.repository)
      .flag("verbose", order.verbose)
      .object("session", std::move(session))
      .texts("command", order.command)
      .text("directory", order.directory)
      .text("mountpoint", order.mountpoint)
      .text("host_mountpoint", order.host_mountpoint)
      .texts("environment", order.environment)
      .texts("python_path", order.python_path)
      .text("who", order.who)
      .number("grace_ms", static_cast<std::uint64_t>(order.grace_ms))
      .number("processes", order.limits.processes)
      .flag("needs_processes", order.limits.needs_processes)
      .number("output_bytes", order.output_bytes)
      .flag("confined", order.confined)
      .flag("network", order.network);
  if (order.timeout_ms) body.number("timeout_ms", static_cast<std::uint64_t>(*order.timeout_ms));
  if (order.limits.millicpus) body.number("millicpus", *order.limits.millicpus);
  if (order.limits.memory_bytes) body.number("memory_bytes", *order.limits.memory_bytes);
  if (order.groups) {
    std::vector<std::string> groups;
    for (const std::uint32_t group : *order.groups) groups.push_back(std::to_string(group));
    body.texts("groups", groups);
  }
  return body.text();
}

RunOrder decode_run_order(std::string_view bytes) {
  api::RequestFields fields(bytes, "the order");
  const auto id = session::SessionId::parse(fields.required_text("id"));
  assert(id);
  const auto number = [&](const char* name) { return fields.number(name, 0, kMost); };
  const auto texts = [&](const char* name) { return fields.texts(name).value_or(std::vector<std::string>()); };
  RunOrder order{.id = *id};
  order.repository = fields.required_text("repository");
  order.verbose = fields.flag("verbose").value_or(false);
  if (std::optional<api::RequestFields> session = fields.object("session"))
    read_session_request(*session, order.session, kWhole);
  order.command = texts("command");
  order.directory = fields.text("directory").value_or("");
  order.mountpoint = fields.text("mountpoint").value_or("");
  order.host_mountpoint = fields.text("host_mountpoint").value_or("");
  order.environment = texts("environment");
  order.python_path = texts("python_path");
  order.who = fields.text("who").value_or("");
  if (const auto timeout = number("timeout_ms")) order.timeout_ms = static_cast<std::int64_t>(*timeout);
  order.grace_ms = static_cast<std::int64_t>(number("grace_ms").value_or(0));
  order.limits = {.memory_bytes = number("memory_bytes"),
                  .processes = number("processes").value_or(0),
                  .millicpus = number("millicpus"),
                  .needs_processes = fields.flag("needs_processes").value_or(false)};
  order.output_bytes = number("output_bytes").value_or(0);
  order.confined = fields.flag("confined").value_or(true);
  order.network = fields.flag("network").value_or(false);
  if (const auto groups = fields.texts("groups")) {
    order.groups.emplace();
    for (const std::string& group : *groups) order.groups->push_back(static_cast<std::uint32_t>(std::stoul(group)));
  }
  fields.refuse_others();
  return order;
}

}  // namespace escrow::daemon
