#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "api/protocol.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/cli/session_argument.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "session/transaction/disputes.h"

namespace escrow::daemon {
namespace {

using session::Settle;

struct ResolveArguments {
  std::vector<std::string> words;  // SESSION PATH..., or paths alone
  bool mine = false, theirs = false, merged = false, json = false;
};

Settle chosen_way(const ResolveArguments& arguments, const SessionPaths& given_paths) {
  using session::Errc;
  const int given = int{arguments.mine} + int{arguments.theirs} + int{arguments.merged};
  if (given == 0 && !given_paths.paths.empty())
    throw session::Error(Errc::bad_request, "say how the paths are settled: --mine, --theirs or --merged");
  if (given != 0 && given_paths.paths.empty())
    throw session::Error(Errc::bad_request, "name the paths that are settled; `escrow resolve " +
                                                given_paths.session.text() + "` lists them");
  return arguments.theirs ? Settle::theirs : arguments.merged ? Settle::merged : Settle::mine;
}

std::string side_of(const char* name, const session::Version& version) {
  if (version.mode == 0) return std::string("    ") + name + " nothing\n";
  char mode[16];
  std::snprintf(mode, sizeof mode, "%06o", version.mode);
  return std::string("    ") + name + ' ' + mode + ' ' + version.id.hex() + '\n';
}

std::string lines_of(const std::vector<session::Unresolved>& paths) {
  std::string lines;
  for (const session::Unresolved& one : paths)
    lines += conflict_lines(session::conflicts_of({one}).paths) + side_of("base  ", one.base) +
             side_of("mine  ", one.mine) + side_of("theirs", one.theirs);
  return lines;
}

void list_paths(const api::ResolveAnswer& answer, const std::string& id) {
  if (answer.left.empty()) {
    print_line("Nothing conflicts in session " + id + ".");
    return;
  }
  print("Both session " + id + " and the branch changed:\n" + lines_of(answer.left));
  tell("The session shows its own side, `git cat-file blob ID` the others. `escrow resolve " + id +
       " PATH... --mine|--theirs|--merged` settles a path.");
}

void report_settled(const api::ResolveAnswer& answer, const std::string& id, Settle how) {
  const std::string came = answer.merged == 0 ? "" : "; " + plural(answer.merged, "path") + " came from the new head";
  print_line("Settled " + plural(answer.settled.size(), "path") + " of session " + id + " as " +
             session::name_of(how) + came +
             (answer.left.empty() ? "; `escrow commit " + id + "` commits it."
                                  : "; " + plural(answer.left.size(), "path") + " left:"));
  for (const session::Unresolved& one : answer.left) print_line("  " + session::quote_path(one.path));
}

int resolve(const GlobalOptions& options, const ResolveArguments& arguments) {
  const std::unique_ptr<SessionSource> sessions = session_source(options);
  const SessionPaths given = session_and_paths(*sessions, words_before_flags(options.arguments, arguments.words));
  const Settle how = chosen_way(arguments, given);
  const session::SessionId& id = given.session;
  const api::ResolveAnswer answer = sessions->settle(id, given.paths, how);
  if (arguments.json) {
    print_line(api::to_json(answer, id.text()));
  } else if (given.paths.empty()) {
    list_paths(answer, id.text());
  } else {
    report_settled(answer, id.text(), how);
  }
  return kExitSuccess;
}

}  // namespace

void register_resolve(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<ResolveArguments>();
  CLI::App* command = app.add_subcommand("resolve", "List the paths that conflict in a session, or settle them");
  command->add_option("[SESSION] PATH", arguments->words, std::string(kSessionAndPaths) + "; no path: list them");
  CLI::Option* mine = command->add_flag("--mine", arguments->mine, "The session's side stays");
  CLI::Option* theirs = command->add_flag("--theirs", arguments->theirs, "The branch's side comes into the session");
  CLI::Option* merged = command->add_flag("--merged", arguments->merged, "What is in the session now is the merge");
  mine->excludes(theirs)->excludes(merged);
  theirs->excludes(merged);
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "The session shows its own side of a path. The list has the ids of the versions: before both, the session's,\n"
      "and the branch's; `git cat-file blob ID` prints one. A session that meets others' changes at its commit is\n"
      "brought onto the branch's head by the first path that is settled. Once no path is left, commit it.\n"
      "In the mount of a session the paths alone are enough; they are then from the current directory.\n"
      "\n"
      "Examples:\n"
      "  escrow resolve 3f9c\n"
      "  escrow resolve 3f9c config.yaml --theirs && escrow resolve 3f9c src --merged && escrow commit 3f9c\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return resolve(options, *arguments); }; });
}

}  // namespace escrow::daemon
