#include <CLI/CLI.hpp>
#include <memory>

#include "api/json_document.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/cli/machine.h"
#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"

namespace escrow::daemon {
namespace {

std::string json_of(const Machine& machine, const std::vector<Finding>& findings) {
  std::vector<api::JsonObject> values;
  for (const Finding& finding : findings) {
    api::JsonObject value;
    value.text("name", finding.name).flag("on", finding.is_on).text("state", finding.state);
    value.text("worth", finding.worth);
    if (!finding.command.empty()) value.text("command", finding.command);
    values.push_back(std::move(value));
  }
  api::JsonObject libfuse;
  libfuse.text("compiled", machine.libfuse_compiled).text("running", machine.libfuse_running);
  api::JsonObject answer;
  answer.flag("can_mount", can_mount(machine)).object("libfuse", std::move(libfuse));
  return answer.objects("findings", std::move(values)).text();
}

int doctor(bool json) {
  const Machine machine = look_at_machine();
  const std::vector<Finding> findings = findings_of(machine);
  if (json) {
    print_line(json_of(machine, findings));
  } else {
    for (const Finding& finding : findings) {
      print_line((finding.is_on ? "yes  " : "no   ") + finding.name + ": " + finding.state);
      if (finding.is_on) continue;
      print_line("       worth: " + finding.worth);
      if (!finding.command.empty()) print_line("       to turn it on: " + finding.command);
    }
  }
  return can_mount(machine) ? kExitSuccess : kExitEscrowFailed;
}

}  // namespace

void register_doctor(CLI::App& app, const GlobalOptions&, Action& chosen) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("doctor", "Say what this machine allows, and how to turn on what is off");
  command->add_flag("--json", *json, "Print one JSON object");
  command->footer(
      "Nothing is changed. The exit status is 0 when sessions can be mounted here, 125 when they cannot.\n"
      "\n"
      "Example:\n"
      "  escrow doctor --json | jq -r '.findings[] | select(.on | not) | .name + \": \" + .command'\n");
  command->callback([&chosen, json] { chosen = [json] { return doctor(*json); }; });
}

}  // namespace escrow::daemon
