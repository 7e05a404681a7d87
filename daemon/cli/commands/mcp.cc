// `escrow mcp`: the tools of sessions for a model, over standard input and output.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "daemon/cli/commands/commands.h"
#include "daemon/cli/mcp/mcp_server.h"
#include "daemon/cli/request_arguments.h"
#include "daemon/client/remote_sessions.h"
#include "daemon/host/config.h"
#include "daemon/process/exit_status.h"
#include "session/base/error.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;

struct McpArguments {
  RequestArguments given;
  bool without_approval = false;
  std::string network = "none";
};

int serve_mcp(const GlobalOptions& options, const McpArguments& arguments) {
  if (!service_host(options).empty()) {
    throw Error(Errc::bad_request, "mcp works on a repository of this machine; leave --host and ESCROW_HOST out, and "
                                   "name the repository with --repo");
  }
  McpSettings settings;
  settings.repository = options;
  // Every call opens it; a wrong name is said at once.
  settings.repository.repository = repository_path(options);
  settings.session = arguments.given.request();
  settings.commits_unreviewed = arguments.without_approval;
  settings.network = arguments.network == "host";
  check_mcp_settings(settings);
  McpServer(settings, STDIN_FILENO, STDOUT_FILENO).serve();
  return kExitSuccess;
}

}  // namespace

void register_mcp(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<McpArguments>();
  CLI::App* command = app.add_subcommand("mcp", "Offer sessions to a model as tools (Model Context Protocol, stdio)");
  arguments->given.add_to(*command, {RequestPart::commit, RequestPart::view});
  command->add_flag("--without-approval", arguments->without_approval,
                    "A commit reaches the branch; default: a person approves each");
  command->add_option("--network", arguments->network, "Of commands: none (the default) or host, the machine's")
      ->check(CLI::IsMember({"none", "host"}));
  command->footer(
      "A program that speaks the Model Context Protocol starts it; see api/mcp.md. Its tools open sessions, read and\n"
      "write files in them, run confined commands, and commit or roll back. The options above hold for every session;\n"
      "a session that another command has opened is left alone. Commits are sealed for `escrow approve`, unless\n"
      "--without-approval is given.\n"
      "\n"
      "Example:\n"
      "  escrow --repo data.git mcp --committer agent:builder --policy team.json\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return serve_mcp(options, *arguments); }; });
}

}  // namespace escrow::daemon
