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

struct RollbackArguments {
  std::string session;
  bool keep = false;
  bool discard_forks = false;
  bool json = false;
};

int rollback(const GlobalOptions& options, const RollbackArguments& arguments) {
  const std::unique_ptr<SessionSource> source = session_source(options);
  const session::SessionId session = the_session(*source, arguments.session);
  leave_the_mount();
  const std::string& id = session.text();
  if (arguments.discard_forks) discard_forks(*source, session);
  const api::RollbackAnswer answer = source->rollback(session, arguments.keep);
  if (arguments.json) {
    print_line(api::to_json(answer, id));
    return kExitSuccess;
  }
  if (!answer.warning.empty()) tell("escrow: " + answer.warning);
  print_line(
      "Session " + id + " was rolled back" +
      (arguments.keep ? "; what it held is kept as refs/sessions/" + id + "." : "; nothing of it remains."));
  return kExitSuccess;
}

}  // namespace

void register_rollback(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<RollbackArguments>();
  CLI::App* command = app.add_subcommand("rollback", "Throw a session's changes away and end it");
  add_session(*command, arguments->session);
  command->add_flag("--keep-result", arguments->keep, "Keep what it held under refs/sessions/<id>");
  command->add_flag("--discard-forks", arguments->discard_forks, "Roll its forks back first, which keep it open");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "A mounted session is unmounted; the command of a run is ended first.\n"
      "\n"
      "Example:\n"
      "  escrow rollback 3f9c\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return rollback(options, *arguments); }; });
}

}  // namespace escrow::daemon
