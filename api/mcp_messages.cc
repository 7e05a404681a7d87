#include "api/mcp_messages.h"

#include <utility>

#include "api/json_values.h"
#include "session/base/error.h"

namespace escrow::api {

namespace {

constexpr int kMostDepth = 64;
constexpr std::pair<McpVersion, const char*> kMcpVersions[] = {
    {McpVersion::v2024_11_05, "2024-11-05"},
    {McpVersion::v2025_03_26, "2025-03-26"},
    {McpVersion::v2025_06_18, "2025-06-18"},
};

const char* name_of_version(McpVersion version) {
  for (const auto& [known, name] : kMcpVersions) {
    if (known == version) return name;
  }
  return "";
}

McpMessage invalid_message(int code, std::string error, std::string id = "null") {
  return {.kind = McpMessage::Kind::invalid, .id = std::move(id), .method = {}, .params = {}, .code = code,
          .error = std::move(error)};
}

McpMessage message_from(const Json& json) {
  if (!json.is_object()) return invalid_message(kMcpInvalidRequest, "a message is a JSON object");
  McpMessage message;
  const auto id = json.find("id");
  const bool has_id = id != json.end();
  if (has_id && !id->is_string() && !id->is_number()) {
    return invalid_message(kMcpInvalidRequest, "\"id\" is a string or a number");
  }
  if (has_id) message.id = dump(*id);
  if (json.value("jsonrpc", Json()) != "2.0") {
    return invalid_message(kMcpInvalidRequest, "\"jsonrpc\" is to be \"2.0\"", message.id);
  }
  const auto method = json.find("method");
  if (method == json.end()) {
    if (has_id && (json.contains("result") || json.contains("error"))) {
      message.kind = McpMessage::Kind::response;
      return message;
    }
    return invalid_message(kMcpInvalidRequest, "the message has no \"method\"", message.id);
  }
  if (!method->is_string()) return invalid_message(kMcpInvalidRequest, "\"method\" is a string", message.id);
  message.method = method->get<std::string>();
  if (const auto params = json.find("params"); params != json.end() && !params->is_null()) {
    if (!params->is_object()) {
      if (has_id) return invalid_message(kMcpInvalidParams, "\"params\" is an object", message.id);
      message.method.clear();  // a notification that nobody knows
    } else {
      message.params = dump(*params);
    }
  }
  message.kind = has_id ? McpMessage::Kind::request : McpMessage::Kind::notification;
  return message;
}

std::string printable(const Json& value) {
  std::string text;
  if (!value.is_string()) return text;
  for (const char byte : value.get_ref<const std::string&>()) {
    if (byte >= ' ' && byte <= '~' && text.size() < 100) text += byte;
  }
  return text;
}

Json text_block(const std::string& text) { return Json{{"type", "text"}, {"text", text}}; }

}  // namespace

McpLine read_mcp_line(std::string_view line) {
  bool is_too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    is_too_deep = is_too_deep || depth > kMostDepth;
    return !is_too_deep;
  };
  const Json json = Json::parse(line.begin(), line.end(), watch, false);
  if (is_too_deep) return {.messages = {invalid_message(kMcpParseError, "the line is nested too deeply")}};
  if (json.is_discarded()) return {.messages = {invalid_message(kMcpParseError, "the line is not JSON in UTF-8")}};
  if (!json.is_array()) return {.messages = {message_from(json)}};
  if (json.empty()) return {.messages = {invalid_message(kMcpInvalidRequest, "the batch is empty")}};
  McpLine batch{.messages = {}, .is_batch = true};
  for (const Json& one : json) batch.messages.push_back(message_from(one));
  return batch;
}

std::optional<McpInitialize> read_mcp_initialize(const std::string& params, std::string& error) {
  const Json json = Json::parse(params);
  const Json wanted = json.value("protocolVersion", Json());
  if (!wanted.is_string()) {
    error = "\"protocolVersion\" is missing";
    return std::nullopt;
  }
  McpInitialize initialize;
  for (const auto& [version, name] : kMcpVersions) {
    if (wanted == name) initialize.version = version;
  }
  if (const auto client = json.find("clientInfo"); client != json.end() && client->is_object()) {
    initialize.client = printable(client->value("name", Json()));
    const std::string version = printable(client->value("version", Json()));
    if (!version.empty()) initialize.client += (initialize.client.empty() ? "" : " ") + version;
  }
  return initialize;
}

std::optional<McpCall> read_mcp_call(const std::string& params, std::string& error) {
  const Json json = Json::parse(params);
  const Json name = json.value("name", Json());
  const Json arguments = json.value("arguments", Json::object());
  if (!name.is_string()) {
    error = "\"name\" is missing: the tool to call";
    return std::nullopt;
  }
  if (!arguments.is_object() && !arguments.is_null()) {
    error = "\"arguments\" is an object";
    return std::nullopt;
  }
  return McpCall{.tool = name.get<std::string>(), .arguments = arguments.is_null() ? "{}" : dump(arguments)};
}

std::string read_mcp_cancelled(const std::string& params) {
  const Json json = Json::parse(params);
  const Json id = json.value("requestId", Json());
  return id.is_string() || id.is_number() ? dump(id) : std::string();
}

std::string mcp_initialized(McpVersion version, const std::string& server_version, const std::string& instructions) {
  return dump(Json{{"protocolVersion", name_of_version(version)},
                   {"capabilities", {{"tools", {{"listChanged", false}}}}},
                   {"serverInfo", {{"name", "escrow"}, {"title", "Escrow"}, {"version", server_version}}},
                   {"instructions", instructions}});
}

std::string mcp_tools(const std::vector<McpTool>& tools) {
  Json list = Json::array();
  for (const McpTool& tool : tools) {
    list.push_back(Json{{"name", tool.name},
                        {"title", tool.title},
                        {"description", tool.description},
                        {"inputSchema", Json::parse(tool.schema)},
                        {"annotations", {{"readOnlyHint", tool.only_reads}, {"openWorldHint", false}}}});
  }
  return dump(Json{{"tools", std::move(list)}});
}

std::string mcp_answered(McpVersion version, const McpAnswer& answer) {
  Json content = Json::array();
  content.push_back(text_block(answer.document));
  for (const std::string& text : answer.texts) content.push_back(text_block(text));
  Json result{{"content", std::move(content)}, {"isError", answer.is_error}};
  if (version >= McpVersion::v2025_06_18 && !answer.is_error) {
    result["structuredContent"] = Json::parse(answer.document);
  }
  return dump(result);
}

std::string mcp_result(const std::string& id, const std::string& result) {
  return R"({"jsonrpc":"2.0","id":)" + id + R"(,"result":)" + result + "}";
}

std::string mcp_error(const std::string& id, int code, const std::string& message) {
  return dump(Json{{"jsonrpc", "2.0"}, {"id", Json::parse(id)}, {"error", {{"code", code}, {"message", message}}}});
}

std::string encode(const McpAnswer& answer) {
  Json json{{"document", answer.document}, {"is_error", answer.is_error}, {"texts", Json::array()}};
  for (const std::string& text : answer.texts) json["texts"].push_back(text);
  return dump(json);
}

McpAnswer decode_mcp_answer(std::string_view text) {
  const Json json = parse_object(text);
  McpAnswer answer{.document = get_bytes(json, "document"), .texts = {}, .is_error = get_bool(json, "is_error")};
  for (const Json& one : get_array(json, "texts")) {
    if (!one.is_string()) throw session::Error(session::Errc::bad_request, "the answer's \"texts\" are no strings");
    answer.texts.push_back(one.get<std::string>());
  }
  return answer;
}

}  // namespace escrow::api
