#include <CLI/CLI.hpp>
#include <memory>

#include "api/json_document.h"
#include "api/protocol.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/cli/commands/mounting.h"
#include "daemon/client/remote_sessions.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/host/config.h"
#include "daemon/host/session_verbs.h"
#include "daemon/process/exit_status.h"
#include "session/base/error.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;

struct ForkArguments {
  std::string session, mountpoint;
  bool json = false;
};

struct AdoptArguments {
  std::string fork, message;
  bool json = false;
};

// The source goes before anything is mounted: the process that hosts the mount begins without threads.
session::SessionRecord make_fork(const GlobalOptions& options, const std::string& parent) {
  const std::unique_ptr<SessionSource> sessions = session_source(options);
  return sessions->fork(sessions->resolve(parent));
}

int fork(const GlobalOptions& given, const ForkArguments& arguments) {
  GlobalOptions options = given;
  const std::string mountpoint = arguments.mountpoint.empty() ? "" : absolute_path(arguments.mountpoint);
  if (service_host(given).empty()) {
    options.repository = repository_path(given);
    if (!mountpoint.empty()) check_place_to_mount(options, mountpoint);
  }
  const session::SessionRecord made = make_fork(options, arguments.session);
  const std::string& id = made.id.text();
  if (!mountpoint.empty()) {
    try {
      mount_in_background(options, made.id, mountpoint);
    } catch (const Error& error) {
      throw Error(error.code(), "session " + id + " is open, but not mounted (`escrow mount DIR --session " + id +
                                    "` does it): " + error.what());
    }
  }
  if (arguments.json) {
    print_line(api::JsonObject().text("session", id).text("parent", made.parent->text()).text("mountpoint", mountpoint)
                   .text());
  } else {
    print_line(id);
  }
  return kExitSuccess;
}

int adopt(const GlobalOptions& options, const AdoptArguments& arguments) {
  const std::unique_ptr<SessionSource> sessions = session_source(options);
  const session::SessionId fork = sessions->resolve(arguments.fork);
  const std::optional<session::SessionId> parent = sessions->status(fork).record.parent;
  if (!parent)
    throw Error(Errc::wrong_state, "cannot adopt session " + fork.text() + ": it is no fork; `escrow commit` commits "
                                       "it to its branch");
  const api::CommitAnswer answer = sessions->commit(fork, {.message = arguments.message});
  std::vector<std::string> dropped;
  if (answer.conflicts.empty()) {
    for (const session::SessionId& other : sessions->forks_of(*parent)) {
      discard_forks(*sessions, other);
      sessions->rollback(other, false);
      dropped.push_back(other.text());
    }
  }
  if (arguments.json) {
    print_line(api::JsonObject()
                   .text("session", fork.text())
                   .text("parent", parent->text())
                   .conflicts("conflicts", answer.conflicts)
                   .texts("rolled_back", dropped)
                   .text());
    return exit_status_of(answer);
  }
  if (!answer.warning.empty()) tell("escrow: " + answer.warning);
  if (!answer.conflicts.empty()) {
    tell("Both the fork and session " + parent->text() + " changed:\n" + conflict_lines(answer.conflicts) +
         "Nothing was changed, and every fork stays open.");
    return kExitConflict;
  }
  print_line("Session " + parent->text() + " has what its fork " + fork.text() + " changed (" +
             human_counts(answer.counts) + ")." +
             (dropped.empty() ? "" : " Rolled back: " + plural(dropped.size(), "other fork") + "."));
  return kExitSuccess;
}

}  // namespace

void register_fork(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<ForkArguments>();
  CLI::App* command = app.add_subcommand("fork", "Open a session that begins as another one, and is committed into it");
  command->add_option("SESSION", arguments->session, "The session, or a unique prefix of its id")->required();
  command->add_option("DIR", arguments->mountpoint, "An empty directory: mount the fork there");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "The fork has what the session has at that moment, mounted or not, with programs running in it; then they\n"
      "diverge. `escrow commit` of a fork brings its changes into the session, and not into the branch; where both\n"
      "changed a path the exit status is 122, and nothing has changed. `escrow rollback` leaves the session as it is.\n"
      "A session cannot be committed before its forks have ended. Prints the fork's id.\n"
      "\n"
      "Example:\n"
      "  f=$(escrow fork 3f9c work) && (cd work && make) && escrow commit $f\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return fork(options, *arguments); }; });
}

void register_adopt(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<AdoptArguments>();
  CLI::App* command = app.add_subcommand("adopt", "Commit one fork into its session, and roll the others back");
  command->add_option("FORK", arguments->fork, "The fork, or a unique prefix of its id")->required();
  command->add_option("-m,--message", arguments->message, "For the audit record")->type_name("M");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "Where the fork conflicts with what its session has become the exit status is 122, and every fork stays open.\n"
      "\n"
      "Example:\n"
      "  escrow adopt 81d2\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return adopt(options, *arguments); }; });
}

}  // namespace escrow::daemon
