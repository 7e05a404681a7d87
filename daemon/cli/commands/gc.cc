#include <CLI/CLI.hpp>
#include <memory>

#include "api/resources.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"

namespace escrow::daemon {
namespace {

struct GcArguments {
  bool json = false;
};

int gc(const GlobalOptions& options, const GcArguments& arguments) {
  const api::GcResource report = session_source(options)->gc();
  if (arguments.json) {
    print(api::to_json(report));
    return kExitSuccess;
  }
  print(table({{"", "BEFORE", "AFTER"},
               {"objects", std::to_string(report.objects_before), std::to_string(report.objects_after)},
               {"packs", std::to_string(report.packs_before), std::to_string(report.packs_after)},
               {"size", human_size(report.bytes_before), human_size(report.bytes_after)}}));
  if (report.sessions_forgotten > 0) {
    print_line("Forgot " + plural(report.sessions_forgotten, "session") + " whose audit retention has passed.");
  }
  if (const auto& holder = report.held_back) {
    const std::string id = holder->session.text();
    print_line("Objects written since " + human_time(holder->since.seconds, 0) + " stay, needed or not: session " + id +
               (holder->is_aside ? " was opened then, and is set aside in escrow/orphans/" + id + " of the repository. "
                                   "Remove that directory if the catalog that knows it will not come back."
                                 : " has been open since then."));
  }
  return kExitSuccess;
}

}  // namespace

void register_gc(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<GcArguments>();
  CLI::App* command = app.add_subcommand("gc", "Drop what no reference, session or cache needs");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "Safe at any time, with sessions open and mounted; so is `git gc`. Records of sessions that ended longer ago\n"
      "than `git config escrow.auditRetention` (90d) are forgotten, with the\n"
      "results they kept under refs/sessions/; their commits are not.\n"
      "\n"
      "Example:\n"
      "  escrow --repo data.git gc\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return gc(options, *arguments); }; });
}

}  // namespace escrow::daemon
