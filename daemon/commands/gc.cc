#include <CLI/CLI.hpp>
#include <memory>

#include "api/json_document.h"
#include "daemon/commands/commands.h"
#include "daemon/exit_status.h"
#include "daemon/repository_context.h"
#include "daemon/text_output.h"

namespace escrow::daemon {
namespace {

struct GcArguments {
  bool json = false;
};

int gc(const GlobalOptions& options, const GcArguments& arguments) {
  RepositoryContext context(options);
  context.recover();
  const storage::GcReport report = context.repository().gc();
  if (arguments.json) {
    print_line(api::JsonObject()
                   .number("objects_before", report.objects_before)
                   .number("objects_after", report.objects_after)
                   .number("packs_before", report.packs_before)
                   .number("packs_after", report.packs_after)
                   .number("bytes_before", report.bytes_before)
                   .number("bytes_after", report.bytes_after)
                   .text());
    return kExitSuccess;
  }
  print(table({{"", "BEFORE", "AFTER"},
               {"objects", std::to_string(report.objects_before), std::to_string(report.objects_after)},
               {"packs", std::to_string(report.packs_before), std::to_string(report.packs_after)},
               {"size", human_size(report.bytes_before), human_size(report.bytes_after)}}));
  return kExitSuccess;
}

}  // namespace

void register_gc(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<GcArguments>();
  CLI::App* command = app.add_subcommand("gc", "Drop what no reference, session or cache needs");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "Safe at any time, with sessions open and mounted; so is `git gc`.\n"
      "\n"
      "Example:\n"
      "  escrow --repo data.git gc\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return gc(options, *arguments); }; });
}

}  // namespace escrow::daemon
