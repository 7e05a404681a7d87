#include <CLI/CLI.hpp>
#include <memory>

#include "api/json_document.h"
#include "api/protocol.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/cli/session_argument.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"

namespace escrow::daemon {
namespace {

struct SavepointArguments {
  std::string session, name;
  bool name_status = false, stat = false, json = false;
};

std::string sentence_of(const api::SavepointRequest& request, const api::SavepointsAnswer& answer,
                        const session::SessionId& id) {
  const std::string which = "savepoint " + request.name + " of session " + id.text();
  switch (request.verb) {
    case api::SavepointVerb::list:
      return "Session " + id.text() + " has no savepoint.";
    case api::SavepointVerb::create:
      return "Made " + which + ".";
    case api::SavepointVerb::restore:
      return "Went back to " + which + "; what it had is savepoint " + answer.undo + ".";
    case api::SavepointVerb::drop:
      return "Dropped " + which + ".";
  }
  return {};
}

int change_savepoint(const GlobalOptions& options, const SavepointArguments& arguments, api::SavepointVerb verb) {
  const std::unique_ptr<SessionSource> sessions = session_source(options);
  const session::SessionId id = the_session(*sessions, arguments.session);
  const api::SavepointRequest request{.verb = verb, .name = arguments.name};
  const api::SavepointsAnswer answer = sessions->savepoint(id, request);
  if (!answer.warning.empty()) tell("escrow: " + answer.warning);
  if (arguments.json) {
    print_line(api::to_json(answer, id.text()));
  } else if (verb != api::SavepointVerb::list || answer.savepoints.empty()) {
    print_line(sentence_of(request, answer, id));
  } else {
    std::vector<std::vector<std::string>> rows{{"NAME", "CREATED"}};
    for (const api::SavepointsAnswer::Savepoint& one : answer.savepoints)
      rows.push_back({one.name, human_time(one.created.seconds, 0)});
    print(table(rows));
  }
  return kExitSuccess;
}

int diff_since(const GlobalOptions& options, const SavepointArguments& arguments) {
  const std::unique_ptr<SessionSource> sessions = session_source(options);
  const session::SessionId id = the_session(*sessions, arguments.session);
  api::DiffRequest request{.format = api::DiffFormat::patch, .path = {}, .since = arguments.name};
  if (arguments.name_status) request.format = api::DiffFormat::name_status;
  if (arguments.stat) request.format = api::DiffFormat::stat;
  if (arguments.json) {
    std::string text;
    sessions->diff(id, request, [&](std::string_view part) { text += part; });
    print_line(
        api::JsonObject().text("session", id.text()).text("savepoint", arguments.name).text("diff", text).text());
    return kExitSuccess;
  }
  sessions->diff(id, request, print);
  return kExitSuccess;
}

// `name`: what NAME is; nullptr: there is none.
CLI::App* add_verb(CLI::App& parent, const char* verb, const char* what, const char* name,
                   SavepointArguments& arguments) {
  CLI::App* command = parent.add_subcommand(verb, what);
  add_session(*command, arguments.session);
  if (name != nullptr) {
    command->add_option("NAME", arguments.name, name);
    // A word alone is the name.
    command->parse_complete_callback([&arguments] {
      if (arguments.name.empty()) std::swap(arguments.name, arguments.session);
      if (arguments.name.empty()) throw CLI::RequiredError("NAME");
    });
  }
  command->add_flag("--json", arguments.json, "Print one JSON object");
  return command;
}

}  // namespace

void register_savepoint(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  CLI::App* savepoint = app.add_subcommand("savepoint", "Keep a moment of an open session, and go back to it");
  savepoint->require_subcommand(1);
  savepoint->footer(
      "A savepoint copies nothing and is made in a moment, with the session mounted and programs running in it. Going\n"
      "back makes a savepoint of what there is first, so that it can be undone. A file that is open meanwhile stays\n"
      "what it was for who has it open; its name leads to the older one. Savepoints end with their session.\n"
      "They do not hold caches: going back drops what the session changed in them. They begin anew as last published.\n"
      "\n"
      "In the mount of a session NAME alone is enough.\n"
      "\n"
      "Examples:\n"
      "  escrow savepoint create 3f9c tests-pass\n"
      "  escrow savepoint diff 3f9c tests-pass --stat\n"
      "  escrow savepoint restore 3f9c tests-pass\n");
  auto arguments = std::make_shared<SavepointArguments>();
  const auto changes = [&](const char* verb, const char* what, const char* name, api::SavepointVerb request) {
    add_verb(*savepoint, verb, what, name, *arguments)->callback([&options, &chosen, arguments, request] {
      chosen = [&options, arguments, request] { return change_savepoint(options, *arguments, request); };
    });
  };
  constexpr const char* kNewName = "1 to 64 letters, digits, '.', '_' and '-'";
  constexpr const char* kName = "The savepoint";
  changes("create", "Keep the session as it is now", kNewName, api::SavepointVerb::create);
  changes("list", "Show the session's savepoints, oldest first", nullptr, api::SavepointVerb::list);
  changes("restore", "Make the session what it was", kName, api::SavepointVerb::restore);
  changes("drop", "Forget a savepoint, and give back what only it holds", kName, api::SavepointVerb::drop);
  CLI::App* shown = add_verb(*savepoint, "diff", "Show what has changed since", kName, *arguments);
  CLI::Option* name_status = shown->add_flag("--name-status", arguments->name_status, "A letter and a path a line");
  shown->add_flag("--stat", arguments->stat, "Lines added and removed, file by file")->excludes(name_status);
  shown->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return diff_since(options, *arguments); }; });
}

}  // namespace escrow::daemon
