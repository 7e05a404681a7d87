#include <CLI/CLI.hpp>
#include <memory>

#include "api/json_document.h"
#include "daemon/commands/commands.h"
#include "daemon/config.h"
#include "daemon/exit_status.h"
#include "daemon/repository_context.h"
#include "daemon/session_access.h"
#include "daemon/text_output.h"
#include "session/error.h"
#include "session/repo_path.h"

namespace escrow::daemon {
namespace {

struct UnmountArguments {
  std::string what;
  bool json = false;
};

// A mountpoint names its session too.
std::string session_named(RepositoryContext& context, const std::string& what) {
  const std::string path = absolute_path(what);
  for (const session::SessionManager::Listed& listed : context.sessions().list()) {
    if (listed.attachment == session::Attachment::mounted && listed.record.mountpoint == path) {
      return listed.record.id.text();
    }
  }
  if (what.find('/') != std::string::npos) {
    throw session::Error(session::Errc::no_session,
                         "no session of this repository is mounted on " + session::quote_path(path));
  }
  return what;
}

int unmount(const GlobalOptions& options, const UnmountArguments& arguments) {
  RepositoryContext context(options);
  context.recover();
  SessionAccess access(context, session_named(context, arguments.what));
  const std::string mountpoint = access.unmount();
  if (arguments.json) {
    print_line(api::JsonObject().text("session", access.id().text()).text("mountpoint", mountpoint).text());
  } else {
    print_line("Session " + access.id().text() + " is no longer mounted on " + session::quote_path(mountpoint) +
               "; it stays open.");
  }
  return kExitSuccess;
}

}  // namespace

void register_unmount(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<UnmountArguments>();
  CLI::App* command = app.add_subcommand("unmount", "Unmount a session and leave it open");
  command->add_option("SESSION", arguments->what, "The session, a unique prefix of its id, or its mountpoint")
      ->required();
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "Refused while something uses the mount, which is then named.\n"
      "\n"
      "Examples:\n"
      "  escrow unmount 3f9c\n"
      "  escrow unmount /mnt/data\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return unmount(options, *arguments); }; });
}

}  // namespace escrow::daemon
