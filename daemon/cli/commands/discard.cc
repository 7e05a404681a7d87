#include <CLI/CLI.hpp>
#include <memory>

#include "api/protocol.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"

namespace escrow::daemon {
namespace {

struct DiscardArguments {
  std::string session;
  std::vector<std::string> paths;
  bool json = false;
};

// What was typed: CLI11 takes a name such as "[a,b]" for a list. Flags may follow the paths.
std::vector<std::string> paths_as_given(const GlobalOptions& options, const std::vector<std::string>& paths) {
  std::vector<std::string> words = options.arguments;
  while (!words.empty() && (words.back() == "--json" || words.back() == "-v" || words.back() == "--verbose")) {
    words.pop_back();
  }
  return words_as_given(words, paths);
}

int discard(const GlobalOptions& options, const DiscardArguments& arguments) {
  const std::unique_ptr<SessionSource> sessions = session_source(options);
  const session::SessionId id = sessions->resolve(arguments.session);
  const api::DiscardAnswer answer = sessions->discard(id, paths_as_given(options, arguments.paths));
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
  command->add_option("SESSION", arguments->session, "The session, or a unique prefix of its id")->required();
  command->add_option("PATH", arguments->paths, "Files or directories, as `escrow diff` shows them")->required();
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "A directory is taken back with everything below it; what was deleted comes back, what is new goes.\n"
      "A path that neither the base nor the session has is refused before anything is changed.\n"
      "\n"
      "Example:\n"
      "  escrow discard 3f9c results/old.csv logs\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return discard(options, *arguments); }; });
}

}  // namespace escrow::daemon
