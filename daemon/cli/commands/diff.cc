#include <CLI/CLI.hpp>
#include <memory>

#include "api/json_document.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/cli/session_argument.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"

namespace escrow::daemon {
namespace {

struct DiffArguments {
  std::string session;
  bool name_status = false, stat = false, patch = false, json = false;
};

api::DiffFormat format_of(const DiffArguments& arguments) {
  if (arguments.name_status) return api::DiffFormat::name_status;
  return arguments.stat ? api::DiffFormat::stat : api::DiffFormat::patch;
}

int diff(const GlobalOptions& options, const DiffArguments& arguments) {
  const std::unique_ptr<SessionSource> source = session_source(options);
  const session::SessionId id = the_session(*source, arguments.session);
  const api::DiffRequest request{.format = format_of(arguments), .path = {}};
  if (arguments.json) {
    std::string text;
    const std::vector<session::Omission> omitted =
        source->diff(id, request, [&](std::string_view part) { text += part; });
    print_line(
        api::JsonObject().text("session", id.text()).text("diff", text).omissions("omitted", omitted).text());
    return kExitSuccess;
  }
  const std::vector<session::Omission> omitted = source->diff(id, request, print);
  if (!omitted.empty()) {
    std::string lines = omission_lines(omitted, options.verbose);
    lines.pop_back();
    tell("A commit leaves out:\n" + lines);
  }
  return kExitSuccess;
}

}  // namespace

void register_diff(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<DiffArguments>();
  CLI::App* command = app.add_subcommand("diff", "Show what a commit of a session would change");
  add_session(*command, arguments->session);
  CLI::Option* name_status = command->add_flag("--name-status", arguments->name_status, "A letter and a path a line");
  CLI::Option* stat = command->add_flag("--stat", arguments->stat, "Lines added and removed, file by file");
  CLI::Option* patch = command->add_flag("--patch", arguments->patch, "The changes themselves (the default)");
  name_status->excludes(stat)->excludes(patch);
  stat->excludes(patch);
  command->add_flag("--json", arguments->json, "Print one JSON object that holds the text");
  command->footer(
      "Deletions come first, renames are found, binary files are named, paths are quoted as git does.\n"
      "\n"
      "Examples:\n"
      "  escrow diff 3f9c --stat\n"
      "  escrow diff 3f9c > changes.patch\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return diff(options, *arguments); }; });
}

}  // namespace escrow::daemon
