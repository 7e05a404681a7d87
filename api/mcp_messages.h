// The Model Context Protocol (modelcontextprotocol.io) over lines: what a client says, read strictly, and the messages
// of a server that has tools. JSON-RPC 2.0.
//
// Plain values; pure functions. Ids, parameters and results travel as JSON text. Nothing here throws for what a client
// wrote: a line that is no message is a message of the kind `invalid`, with the code and the sentence to answer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace escrow::api {

enum class McpVersion { v2024_11_05, v2025_03_26, v2025_06_18 };
inline constexpr McpVersion kNewestMcpVersion = McpVersion::v2025_06_18;

// The error codes of JSON-RPC.
inline constexpr int kMcpParseError = -32700;
inline constexpr int kMcpInvalidRequest = -32600;
inline constexpr int kMcpNoSuchMethod = -32601;
inline constexpr int kMcpInvalidParams = -32602;
inline constexpr int kMcpInternalError = -32603;

struct McpMessage {
  enum class Kind { request, notification, response, invalid };
  Kind kind = Kind::invalid;
  std::string id = "null";  // JSON: a string or a number; null of what is invalid and has none
  std::string method;
  std::string params = "{}";  // a JSON object
  int code = 0;               // of what is invalid
  std::string error;
};
// One message, or the messages of a batch.
struct McpLine {
  std::vector<McpMessage> messages;
  bool is_batch = false;
};
McpLine read_mcp_line(std::string_view line);

// The parameters of a request; nullopt: `error` says what is wrong.
struct McpInitialize {
  McpVersion version = kNewestMcpVersion;  // the client's, or the newest where that is another
  std::string client;                      // "NAME VERSION", printable ASCII, at most 200 bytes; may be empty
};
std::optional<McpInitialize> read_mcp_initialize(const std::string& params, std::string& error);
struct McpCall {
  std::string tool, arguments;  // JSON
};
std::optional<McpCall> read_mcp_call(const std::string& params, std::string& error);
// Of notifications/cancelled: the id of the request; empty: it names none.
std::string read_mcp_cancelled(const std::string& params);

struct McpTool {
  const char* name;
  const char* title;
  const char* description;
  const char* schema;  // JSON Schema of its arguments
  bool only_reads = false;
};
// What a tool answers: a document (a JSON object), and texts that would only be longer inside of it.
struct McpAnswer {
  std::string document;
  std::vector<std::string> texts;  // where they are not UTF-8: U+FFFD for what is not
  bool is_error = false;
};

// Results, JSON objects.
std::string mcp_initialized(McpVersion version, const std::string& server_version, const std::string& instructions);
std::string mcp_tools(const std::vector<McpTool>& tools);
std::string mcp_answered(McpVersion version, const McpAnswer& answer);

// Whole messages, without a newline.
std::string mcp_result(const std::string& id, const std::string& result);
std::string mcp_error(const std::string& id, int code, const std::string& message);

// An answer on its way from the process that has found it. Throws Error{bad_request} for what is none.
std::string encode(const McpAnswer& answer);
McpAnswer decode_mcp_answer(std::string_view text);

}  // namespace escrow::api
