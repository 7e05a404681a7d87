// What the tools of `escrow mcp` share: the repository, and the sessions that they may touch.
//
// For one call of a tool; not thread-safe. Throws Error, and api::Problem for what is wrong with the arguments.
#pragma once

#include <string>

#include "api/mcp_messages.h"
#include "api/request_fields.h"
#include "daemon/cli/mcp/mcp_tools.h"
#include "daemon/host/repository_context.h"
#include "daemon/host/session_access.h"

namespace escrow::daemon {

// In the audit record of every session that these tools open.
inline constexpr const char* kMcpTrigger = "mcp";

// One of these: of the tool that writes them, and of the one that runs a command.
SessionRequest mcp_request(const McpSettings& settings, api::RequestFields& fields);

class McpSessions {
 public:
  explicit McpSessions(const McpSettings& settings);

  const McpSettings& settings() const { return settings_; }
  RepositoryContext& context() { return context_; }
  // The argument "session". Throws Error{no_session} for one that these tools have not opened.
  session::SessionRecord find(api::RequestFields& fields);
  SessionAccess access(const session::SessionRecord& record);

 private:
  const McpSettings& settings_;
  RepositoryContext context_;
};

// Below the session's root, as a program in it names it, to below the repository's.
std::string path_in_repository(const session::SessionRecord& record, const std::string& path);

// The tools, file by file.
api::McpAnswer mcp_open_session(const McpSettings& settings, api::RequestFields& fields);
api::McpAnswer mcp_list_sessions(const McpSettings& settings, api::RequestFields& fields);
api::McpAnswer mcp_diff(const McpSettings& settings, api::RequestFields& fields);
api::McpAnswer mcp_savepoint(const McpSettings& settings, api::RequestFields& fields);
api::McpAnswer mcp_restore(const McpSettings& settings, api::RequestFields& fields);
api::McpAnswer mcp_update(const McpSettings& settings, api::RequestFields& fields);
api::McpAnswer mcp_commit(const McpSettings& settings, api::RequestFields& fields);
api::McpAnswer mcp_rollback(const McpSettings& settings, api::RequestFields& fields);
api::McpAnswer mcp_list_files(const McpSettings& settings, api::RequestFields& fields);
api::McpAnswer mcp_read_file(const McpSettings& settings, api::RequestFields& fields);
api::McpAnswer mcp_write_file(const McpSettings& settings, api::RequestFields& fields);
api::McpAnswer mcp_delete_file(const McpSettings& settings, api::RequestFields& fields);
api::McpAnswer mcp_run_command(const McpSettings& settings, api::RequestFields& fields);

}  // namespace escrow::daemon
