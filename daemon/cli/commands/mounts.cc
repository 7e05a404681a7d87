#include <CLI/CLI.hpp>
#include <memory>

#include "api/json_document.h"
#include "api/protocol.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/host/mount_entry_spec.h"
#include "daemon/process/exit_status.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;

struct MountsArguments {
  std::string session, path;
  std::vector<std::string> mounts, injections, caches;
  bool json = false;
};

std::vector<MountEntrySpec> entries_of(const MountsArguments& arguments) {
  std::vector<MountEntrySpec> specs;
  for (const std::string& text : arguments.mounts) specs.push_back(parse_mount_entry(text, "--mount"));
  for (const std::string& text : arguments.injections) specs.push_back(parse_injection(text, "--inject"));
  for (const std::string& text : arguments.caches) specs.push_back(parse_cache(text, "--cache"));
  if (specs.empty()) throw Error(Errc::bad_request, "give the entry with --mount, --inject or --cache");
  return specs;
}

void show(const MountsArguments& arguments, const session::SessionId& id, const api::MountsAnswer& answer) {
  if (arguments.json) return print_line(api::to_json(answer, id.text()));
  if (answer.mounts.empty()) return print_line("Session " + id.text() + " has nothing beside its repository.");
  std::vector<std::vector<std::string>> rows{{"PATH", "SOURCE", "MODE", ""}};
  for (const api::MountEntryView& mount : answer.mounts) {
    rows.push_back({session::quote_path(mount.path), session::quote_path(mount.source), mount.mode,
                    mount.hides ? "hides what the repository has there" : ""});
  }
  print(table(rows));
}

int change_mounts(const GlobalOptions& options, const MountsArguments& arguments, api::MountsVerb verb) {
  const std::unique_ptr<SessionSource> sessions = session_source(options);
  const session::SessionId id = sessions->resolve(arguments.session);
  api::MountsAnswer answer;
  if (verb == api::MountsVerb::list || verb == api::MountsVerb::remove) {
    answer = sessions->mounts(id, {.verb = verb, .entry = {}, .path = arguments.path});
  } else {
    for (const MountEntrySpec& spec : entries_of(arguments))
      answer = sessions->mounts(id, {.verb = verb, .entry = document_of(spec), .path = {}});
  }
  show(arguments, id, answer);
  return kExitSuccess;
}

CLI::App* add_mounts_verb(CLI::App& parent, const char* verb, const char* what, MountsArguments& arguments) {
  CLI::App* command = parent.add_subcommand(verb, what);
  command->add_option("SESSION", arguments.session, "The session, or a unique prefix of its id")->required();
  command->add_flag("--json", arguments.json, "Print one JSON object");
  return command;
}

void add_entries(CLI::App& command, MountsArguments& arguments) {
  const auto add = [&command](const char* name, std::vector<std::string>& texts, const char* value,
                              const std::string& help) {
    command.add_option(name, texts, help)->allow_extra_args(false)->type_name(value);
  };
  add("--mount", arguments.mounts, "ENTRY", "path=P,source=host:DIR|inject:DIR|rev:BRANCH|scratch|cache:NAME\n"
      "[,mode=read-write|overlay]");
  add("--inject", arguments.injections, "PATH=FROM", "A copy of a directory or file as it is now;\n"
      ",mode=overlay behind it: writable");
  add("--cache", arguments.caches, "PATH[=NAME]", "What the last committed session left of a cache");
}

}  // namespace

void register_mounts(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  CLI::App* mounts = app.add_subcommand("mounts", "Show and change what an open session has beside its repository");
  mounts->require_subcommand(1);
  mounts->footer(
      "The session may be mounted, and programs run in it: from one moment on every path leads to the new entry.\n"
      "Open files go on as they were. A program inside a replaced copy goes on in the old one; a host directory, and\n"
      "a removed entry, is an empty directory for it.\n"
      "\n"
      "Examples:\n"
      "  escrow mounts list 3f9c\n"
      "  escrow mounts add 3f9c --inject uploads=/tmp/report.pdf\n"
      "  escrow mounts replace 3f9c --inject tools=./tools,mode=overlay\n"
      "  escrow mounts remove 3f9c tools\n");
  auto arguments = std::make_shared<MountsArguments>();
  const auto add = [&](const char* verb, const char* what, api::MountsVerb request) {
    CLI::App* command = add_mounts_verb(*mounts, verb, what, *arguments);
    command->callback([&options, &chosen, arguments, request] {
      chosen = [&options, arguments, request] { return change_mounts(options, *arguments, request); };
    });
    return command;
  };
  add("list", "Show the entries", api::MountsVerb::list);
  add_entries(*add("add", "Add entries at paths where there are none", api::MountsVerb::add), *arguments);
  add_entries(*add("replace", "Put entries in the place of those at their paths", api::MountsVerb::replace),
              *arguments);
  add("remove", "Remove an entry; what it hid in the repository is seen again", api::MountsVerb::remove)
      ->add_option("PATH", arguments->path, "Where it is in the session")
      ->required();
}

}  // namespace escrow::daemon
