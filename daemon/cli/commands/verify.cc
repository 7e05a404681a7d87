#include <CLI/CLI.hpp>
#include <memory>

#include "api/resources.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/client/session_source.h"
#include "daemon/console/progress_bar.h"
#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"

namespace escrow::daemon {
namespace {

struct VerifyArguments {
  bool json = false;
};

int verify(const GlobalOptions& options, const VerifyArguments& arguments) {
  std::vector<api::Finding> problems;
  {
    ProgressBar bar("Verifying");
    problems = session_source(options)->verify([&](std::uint64_t done, std::uint64_t total) {
      bar.update(done, total, std::to_string(done) + " of " + plural(total, "object"));
    });
  }
  if (arguments.json) {
    print(api::to_json(problems));
  } else if (problems.empty()) {
    print_line("Every object, session and staging file is sound.");
  } else {
    for (const api::Finding& problem : problems) print_line(problem.where + ": " + problem.what);
    tell("escrow: " + plural(problems.size(), "problem") + " found; nothing was changed");
  }
  return problems.empty() ? kExitSuccess : kExitRefused;
}

}  // namespace

void register_verify(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<VerifyArguments>();
  CLI::App* command = app.add_subcommand("verify", "Check every object, session and staging file");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "Reads everything and changes nothing. Exit status 1 when something is wrong; each line says what and where.\n"
      "\n"
      "Example:\n"
      "  escrow --repo data.git verify\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return verify(options, *arguments); }; });
}

}  // namespace escrow::daemon
