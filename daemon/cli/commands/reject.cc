#include <CLI/CLI.hpp>
#include <memory>

#include "api/protocol.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"

namespace escrow::daemon {
namespace {

struct RejectArguments {
  std::string session, comment;
  bool json = false;
};

int reject(const GlobalOptions& options, const RejectArguments& arguments) {
  const std::unique_ptr<SessionSource> source = session_source(options);
  const session::SessionId session = source->resolve(arguments.session);
  const std::string& id = session.text();
  const api::RollbackAnswer answer = source->reject(session, arguments.comment);
  print_line(arguments.json ? api::to_json(answer, id)
                            : "Session " + id + " was rejected and rolled back.");
  return kExitSuccess;
}

}  // namespace

void register_reject(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<RejectArguments>();
  CLI::App* command = app.add_subcommand("reject", "Throw the result of a session that awaits approval away");
  command->add_option("SESSION", arguments->session, "The session, or a unique prefix of its id")->required();
  command->add_option("--comment", arguments->comment, "One line, kept with the audit record")->type_name("TEXT");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer("Example:\n  escrow reject 3f9c --comment \"touches the wrong model\"\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return reject(options, *arguments); }; });
}

}  // namespace escrow::daemon
