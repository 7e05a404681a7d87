#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "api/protocol.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/cli/session_argument.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/host/session_verbs.h"
#include "daemon/process/exit_status.h"

namespace escrow::daemon {
namespace {

struct CommitArguments {
  std::string session, message;
  bool include_ignored = false, discard_forks = false, json = false;
};

// A path that the session only read cannot be settled: the stale bytes are in the other files that came of it.
std::string words_about_conflicts(const std::vector<session::Conflict>& conflicts, const std::string& id) {
  const std::string stays = conflict_lines(conflicts) + "Session " + id + " was not committed and stays open: ";
  const auto is_of_reading = [](const session::Conflict& one) { return one.met != session::Met::changed; };
  if (std::ranges::any_of(conflicts, is_of_reading))
    return "Others changed what the session had read, and it is serializable:\n" + stays + "`escrow rollback " + id +
           "`, and do its work again. To judge by hand whether it still holds, roll back with --keep-result, then "
           "`escrow resume " + id + "`.";
  return "Both the session and the branch changed:\n" + stays + "`escrow resolve " + id +
         " PATH... --mine|--theirs|--merged` settles each, then commit again.";
}

int report_commit(const GlobalOptions& options, const api::CommitAnswer& answer, const std::string& id) {
  if (!answer.omitted.empty()) print("Left out of the commit:\n" + omission_lines(answer.omitted, options.verbose));
  if (!answer.warning.empty()) tell("escrow: " + answer.warning);
  if (!answer.conflicts.empty()) {
    tell(words_about_conflicts(answer.conflicts, id));
    return kExitConflict;
  }
  if (answer.result) {
    print_line("Session " + id + " (" + human_counts(answer.counts) + ") " +
               awaiting_words(*session::SessionId::parse(id), *answer.result, answer.expires) + ".");
    return kExitAwaitsApproval;
  }
  if (answer.landed_in) {
    print_line("Session " + id + " was committed into session " + answer.landed_in->text() + " (" +
               human_counts(answer.counts) + ").");
  } else if (answer.commit) {
    const bool counted = answer.counts.added + answer.counts.modified + answer.counts.deleted != 0;
    print_line("Session " + id + " was committed as " + answer.commit->hex() +
               (counted ? " (" + human_counts(answer.counts) + ")." : "."));
  } else {
    print_line("Session " + id + " had no changes: it has ended without a commit.");
  }
  return kExitSuccess;
}

int commit(const GlobalOptions& options, const CommitArguments& arguments) {
  const std::unique_ptr<SessionSource> source = session_source(options);
  const session::SessionId session = the_session(*source, arguments.session);
  leave_the_mount();
  if (arguments.discard_forks) discard_forks(*source, session);
  const api::CommitAnswer answer = source->commit(
      session, {.message = arguments.message, .include_ignored = arguments.include_ignored});
  const std::string& id = session.text();
  if (arguments.json) print_line(api::to_json(answer, id));
  const int status = arguments.json ? exit_status_of(answer) : report_commit(options, answer, id);
  source->tidy();
  return status;
}

}  // namespace

void register_commit(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<CommitArguments>();
  CLI::App* command = app.add_subcommand("commit", "Commit a session, mounted or detached, and end it");
  add_session(*command, arguments->session);
  command->add_option("-m,--message", arguments->message, "The commit message (default: names the session)")
      ->type_name("M");
  command->add_flag("--include-ignored", arguments->include_ignored, "Commit what git ignores, too");
  command->add_flag("--discard-forks", arguments->discard_forks, "Roll its forks back first, which keep it open");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "What was written a millisecond ago is in, fsynced or not; nothing written afterwards is. A mounted session is\n"
      "unmounted. Where others changed the same paths meanwhile the exit status is 122, the paths are listed, and the\n"
      "session stays as it was. A session that requires approval is sealed instead (exit status 123): see\n"
      "`escrow approve --help`. What git would not add (.gitignore, info/exclude) and the base does not have is left\n"
      "out and counted; --verbose before the command names it.\n"
      "\n"
      "Example:\n"
      "  escrow commit 3f9c -m \"Retrain with more data\"\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return commit(options, *arguments); }; });
}

}  // namespace escrow::daemon
