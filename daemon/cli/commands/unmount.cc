#include <CLI/CLI.hpp>
#include <memory>

#include "api/json_document.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/cli/session_argument.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/host/config.h"
#include "daemon/process/exit_status.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {
namespace {

struct UnmountArguments {
  std::string what;
  bool json = false;
};

// A mountpoint names its session too.
session::SessionId session_named(SessionSource& source, const std::string& what) {
  if (what.empty()) return the_session(source, what);
  const std::string path = absolute_path(what);
  for (const api::SessionView& view : source.unended()) {
    if (view.attachment == session::Attachment::mounted && view.record.mountpoint == path) return view.record.id;
  }
  if (what.find('/') != std::string::npos) {
    throw session::Error(session::Errc::no_session,
                         "no session of this repository is mounted on " + session::quote_path(path));
  }
  return source.resolve(what);
}

int unmount(const GlobalOptions& options, const UnmountArguments& arguments) {
  const std::unique_ptr<SessionSource> source = session_source(options);
  const session::SessionId id = session_named(*source, arguments.what);
  leave_the_mount();
  const std::string mountpoint = source->unmount(id);
  if (arguments.json) {
    print_line(api::JsonObject().text("session", id.text()).text("mountpoint", mountpoint).text());
  } else {
    print_line("Session " + id.text() + " is no longer mounted on " + session::quote_path(mountpoint) +
               "; it stays open.");
  }
  return kExitSuccess;
}

}  // namespace

void register_unmount(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<UnmountArguments>();
  CLI::App* command = app.add_subcommand("unmount", "Unmount a session and leave it open");
  command->add_option("SESSION", arguments->what,
                      "The session, a prefix of its id, or its mountpoint (default: the one whose mount this is)");
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
