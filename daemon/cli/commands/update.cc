#include <CLI/CLI.hpp>
#include <memory>

#include "api/protocol.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/cli/session_argument.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"

namespace escrow::daemon {
namespace {

struct UpdateArguments {
  std::string session;
  bool json = false;
};

int update(const GlobalOptions& options, const UpdateArguments& arguments) {
  const std::unique_ptr<SessionSource> sessions = session_source(options);
  const session::SessionId session = the_session(*sessions, arguments.session);
  const std::string& id = session.text();
  const api::UpdateAnswer answer = sessions->update(session);
  if (arguments.json) {
    print_line(api::to_json(answer, id));
    return answer.conflicts.empty() ? kExitSuccess : kExitConflict;
  }
  if (!answer.conflicts.empty()) {
    tell("Both the session and the branch changed:\n" + conflict_lines(answer.conflicts) + "Session " + id +
         " is as it was, and nothing was taken in: `escrow discard " + id +
         " PATH...` gives up its side of a path, then update it again.");
    return kExitConflict;
  }
  const std::string base = answer.base ? short_id(*answer.base) : "an empty branch";
  print_line("Took " + plural(answer.merged, "path") + " of " + base + " into session " + id + "; it stays open.");
  return kExitSuccess;
}

}  // namespace

void register_update(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<UpdateArguments>();
  CLI::App* command = app.add_subcommand("update", "Bring a session onto the branch's new head");
  add_session(*command, arguments->session);
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "Paths that others changed are taken in. Where both changed a path, those paths are listed (exit status 122),\n"
      "and nothing is taken in.\n"
      "\n"
      "Example:\n"
      "  escrow update 3f9c && escrow commit 3f9c\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return update(options, *arguments); }; });
}

}  // namespace escrow::daemon
