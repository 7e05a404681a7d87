// The tools that `escrow mcp` offers a model: sessions over one repository of this machine, by the verbs of the command
// line. Every effect is in a session, and only sessions that this tool has opened are touched.
//
// call() is for a process of its own with a single thread: it opens the repository, and run_command forks a supervisor.
// A refusal is an answer with is_error and one sentence.
#pragma once

#include <string>
#include <vector>

#include "api/mcp_messages.h"
#include "daemon/host/global_options.h"
#include "daemon/host/session_request.h"

namespace escrow::daemon {

struct McpSettings {
  GlobalOptions repository;
  SessionRequest session;          // what every session is opened with
  bool commits_unreviewed = false;  // else every session waits for a reviewer
  bool network = false;            // for commands: the machine's
  std::string client;              // who asks, for the audit record
};

const std::vector<api::McpTool>& mcp_tool_list();
bool has_mcp_tool(const std::string& name);

// Throws Error when the repository or what every session is opened with cannot be used.
void check_mcp_settings(const McpSettings& settings);

// What a model is told before it calls anything.
std::string mcp_instructions(const McpSettings& settings);

// `arguments` is a JSON object. Throws nothing but std::bad_alloc.
api::McpAnswer call_mcp_tool(const McpSettings& settings, const std::string& name, const std::string& arguments);

}  // namespace escrow::daemon
