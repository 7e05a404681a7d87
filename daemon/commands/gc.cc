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

// Whose records are older than escrow.auditRetention.
std::uint64_t forget_old_sessions(RepositoryContext& context) {
  session::SessionCatalog& catalog = context.repository().catalog();
  const std::size_t before = catalog.list().size();
  session::Timestamp oldest = context.clock().now();
  oldest.seconds -= context.repository().audit_retention().count();
  catalog.prune(oldest);
  const std::size_t after = catalog.list().size();
  return before > after ? before - after : 0;
}

int gc(const GlobalOptions& options, const GcArguments& arguments) {
  RepositoryContext context(options);
  context.recover();
  const std::uint64_t forgotten = forget_old_sessions(context);
  const storage::GcReport report = context.repository().gc();
  if (arguments.json) {
    print_line(api::JsonObject()
                   .number("objects_before", report.objects_before)
                   .number("objects_after", report.objects_after)
                   .number("packs_before", report.packs_before)
                   .number("packs_after", report.packs_after)
                   .number("bytes_before", report.bytes_before)
                   .number("bytes_after", report.bytes_after)
                   .number("sessions_forgotten", forgotten)
                   .text());
    return kExitSuccess;
  }
  print(table({{"", "BEFORE", "AFTER"},
               {"objects", std::to_string(report.objects_before), std::to_string(report.objects_after)},
               {"packs", std::to_string(report.packs_before), std::to_string(report.packs_after)},
               {"size", human_size(report.bytes_before), human_size(report.bytes_after)}}));
  if (forgotten > 0) print_line("Forgot " + plural(forgotten, "session") + " whose audit retention has passed.");
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
