#include <CLI/CLI.hpp>
#include <memory>

#include "api/json_document.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"

namespace escrow::daemon {
namespace {

constexpr std::uint64_t kApiVersion = 1;

int version(bool json) {
  if (json) {
    print_line(api::JsonObject().text("version", ESCROW_VERSION).number("api", kApiVersion).text());
  } else {
    print_line("escrow " ESCROW_VERSION);
  }
  return kExitSuccess;
}

}  // namespace

void register_version(CLI::App& app, const GlobalOptions&, Action& chosen) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("version", "Print the version");
  command->add_flag("--json", *json, "Print one JSON object");
  command->callback([&chosen, json] { chosen = [json] { return version(*json); }; });
}

}  // namespace escrow::daemon
