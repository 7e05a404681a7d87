#include <CLI/CLI.hpp>
#include <memory>

#include "api/protocol.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/cli/session_argument.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"
#include "session/base/error.h"

namespace escrow::daemon {
namespace {

struct DiscardArguments {
  std::vector<std::string> words;  // SESSION PATH..., or paths alone
  bool json = false;
};

int discard(const GlobalOptions& options, const DiscardArguments& arguments) {
  const std::unique_ptr<SessionSource> sessions = session_source(options);
  const auto& [id, paths] = session_and_paths(*sessions, words_before_flags(options.arguments, arguments.words));
  if (paths.empty()) throw session::Error(session::Errc::bad_request, "name the paths that are to be taken back");
  const api::DiscardAnswer answer = sessions->discard(id, paths);
  if (arguments.json) {
    print_line(api::to_json(answer, id.text()));
  } else {
    print_line("Took " + plural(answer.discarded, "path") + " of session " + id.text() +
               " back to the base; the session stays open.");
  }
  return kExitSuccess;
}

}  // namespace

void register_discard(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<DiscardArguments>();
  CLI::App* command = app.add_subcommand("discard", "Take paths of a session back to what its base has");
  command->add_option("[SESSION] PATH", arguments->words, std::string(kSessionAndPaths))->required();
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "A directory is taken back with everything below it; what was deleted comes back, what is new goes.\n"
      "A path that neither the base nor the session has is refused before anything is changed.\n"
      "In the mount of a session the paths alone are enough; they are then from the current directory.\n"
      "\n"
      "Example:\n"
      "  escrow discard 3f9c results/old.csv logs\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return discard(options, *arguments); }; });
}

}  // namespace escrow::daemon
