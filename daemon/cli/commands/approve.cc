#include <CLI/CLI.hpp>
#include <memory>

#include "api/protocol.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/host/session_verbs.h"
#include "daemon/process/exit_status.h"

namespace escrow::daemon {
namespace {

struct ApproveArguments {
  std::string session, result, comment, message;
  bool json = false;
};

int report_approval(const api::CommitAnswer& answer, const std::string& id) {
  if (!answer.warning.empty()) tell("escrow: " + answer.warning);
  if (!answer.conflicts.empty()) {
    tell("Both the session and the branch changed:\n" + conflict_lines(answer.conflicts) + "Session " + id +
         " was not committed and goes on waiting: mend the branch and approve it again, or `escrow reject " + id +
         "`; its result can be fetched as refs/sessions/" + id + ".");
  } else if (answer.result) {
    const std::string result = answer.result->hex();
    tell("escrow: nothing was committed: others moved the branch since session " + id +
         " was sealed, and on its new head the result is " + result + "; look at it with `escrow diff " + id +
         "`, then `escrow approve " + id + " --result " + result + "`");
  } else if (answer.commit) {
    print_line("Session " + id + " was approved and committed as " + answer.commit->hex() + " (" +
               human_counts(answer.counts) + ").");
  } else {
    print_line("Others have committed the same as session " + id + ": it has ended without a commit.");
  }
  return exit_status_of(answer);
}

int approve(const GlobalOptions& options, const ApproveArguments& arguments) {
  const std::unique_ptr<SessionSource> source = session_source(options);
  const session::SessionId session = source->resolve(arguments.session);
  const std::string& id = session.text();
  const api::CommitAnswer answer = source->approve(session, {.review = {.reviewer = {}, .comment = arguments.comment},
                                                             .result = arguments.result,
                                                             .message = arguments.message});
  if (arguments.json) print_line(api::to_json(answer, id));
  const int status = arguments.json ? exit_status_of(answer) : report_approval(answer, id);
  source->tidy();
  return status;
}

}  // namespace

void register_approve(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<ApproveArguments>();
  CLI::App* command = app.add_subcommand("approve", "Commit the result of a session that awaits approval");
  command->add_option("SESSION", arguments->session, "The session, or a unique prefix of its id")->required();
  command
      ->add_option("--result", arguments->result,
                   "The result that was looked at, as `escrow status` shows it (at least 7 digits)")
      ->type_name("ID");
  command->add_option("--comment", arguments->comment, "One line, kept with the commit and the audit record")
      ->type_name("TEXT");
  command->add_option("-m,--message", arguments->message, "The commit message (default: the session's)")
      ->type_name("M");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "What is committed is exactly what `escrow diff SESSION` shows, on the head it shows it against; another\n"
      "--result is refused. Where others moved the branch since, nothing is committed: the result on the new head\n"
      "gets an id of its own (exit status 123), and approving it takes --result. Where they changed the same paths,\n"
      "the paths are listed (exit status 122) and the session goes on waiting.\n"
      "\n"
      "Example:\n"
      "  escrow diff 3f9c && escrow approve 3f9c --result 5ad1e0c77 --comment \"numbers checked\"\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return approve(options, *arguments); }; });
}

}  // namespace escrow::daemon
