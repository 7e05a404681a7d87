#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <utility>

#include "api/json_document.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/cli/request_arguments.h"
#include "daemon/client/remote_import.h"
#include "daemon/client/remote_opening.h"
#include "daemon/client/remote_sessions.h"
#include "daemon/console/text_output.h"
#include "daemon/host/config.h"
#include "daemon/host/local_author.h"
#include "daemon/host/repository_context.h"
#include "daemon/host/session_verbs.h"
#include "daemon/import/directory_import.h"
#include "daemon/process/exit_status.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {
namespace {

struct ImportArguments {
  std::string directory, message;
  RequestArguments given;
  SessionRequest session;
  std::vector<std::string> of_this_machine;  // options, given, that a service has no word for
  bool json = false;
};

int report_import(const GlobalOptions& options, const ImportArguments& arguments, const Imported& imported) {
  const auto& [answer, record, walked] = imported;
  if (arguments.json) {
    print_line(api::JsonObject()
                   .text("session", record.id.text())
                   .text("state", name_of(answer.state))
                   .text("branch", record.options.branch)
                   .id("commit", answer.commit)
                   .id("result", answer.result)
                   .counts("counts", answer.counts)
                   .number("files", walked.size.files)
                   .number("bytes", walked.size.bytes)
                   .conflicts("conflicts", answer.conflicts)
                   .omissions("omitted", walked.omitted)
                   .text());
    return exit_status_of(answer);
  }
  if (!walked.omitted.empty()) print("Left out of the commit:\n" + omission_lines(walked.omitted, options.verbose));
  if (!answer.conflicts.empty()) {
    tell("Others changed the same paths while the import ran:\n" + conflict_lines(answer.conflicts) +
         "Nothing was committed; what was imported is kept as refs/sessions/" + record.id.text() + ".");
    return kExitConflict;
  }
  const std::string what = plural(walked.size.files, "file") + ", " + human_size(walked.size.bytes) + ", ";
  if (answer.result) {
    print_line("Read " + what + human_counts(answer.counts) + ": session " + record.id.text() + " " +
               awaiting_words(record.id, *answer.result, answer.expires) + ".");
    return kExitAwaitsApproval;
  }
  if (answer.commit && walked.size.files == 0) {
    const std::string& prefix = record.options.prefix.text();
    tell("escrow: warning: what was imported holds no file, so all " + std::to_string(answer.counts.deleted) +
         " files of branch " + record.options.branch + (prefix.empty() ? "" : " below " + session::quote_path(prefix)) +
         " are deleted by this commit");
  }
  if (answer.commit) {
    print_line("Imported " + what + "as commit " + answer.commit->hex() + " on " + record.options.branch + " (" +
               human_counts(answer.counts) + ").");
  } else {
    print_line("Imported nothing: " + what + "and branch " + record.options.branch + " has exactly that already.");
  }
  return kExitSuccess;
}

Imported import_here(const GlobalOptions& options, const ImportArguments& arguments) {
  RepositoryContext context(options);
  context.recover();
  session::SessionOptions opened = session_options(arguments.session, context.references(), "import");
  set_local_author(opened, arguments.session, context.repository().git_directory());
  opened.ephemeral = true;
  const std::unique_ptr<session::Session> session = context.sessions().open(opened, true);
  WalkedDirectory walked;
  const auto read = [&] {
    DirectoryImport import(session->quarantine());
    ImportFilter filter(*session, context.repository().references());
    walked = ShownWalk(arguments.directory).run(import, context.repository().git_directory(), std::move(filter));
    return import.tree();
  };
  const session::CommitOutcome outcome = commit_import(*session, read, arguments.session.message, current_principal());
  return {.answer = commit_answer(*session, outcome), .record = session->record(), .walked = std::move(walked)};
}

Imported import_there(const GlobalOptions& options, const ImportArguments& arguments) {
  refuse_options_of_this_machine(arguments.of_this_machine);
  ServiceClient client(service_host(options), options);
  return import_remotely(client, arguments.directory, arguments.session);
}

int import_directory(const GlobalOptions& options, const ImportArguments& given) {
  ImportArguments arguments = given;
  arguments.directory = absolute_path(given.directory);
  check_directory(arguments.directory);
  const std::string name = std::filesystem::path(arguments.directory).filename().string();
  arguments.session = arguments.given.request();
  arguments.session.message = arguments.message.empty() ? "Import " + session::quote_path(name) : arguments.message;
  const bool is_here = service_host(options).empty();
  return report_import(options, arguments,
                       is_here ? import_here(options, arguments) : import_there(options, arguments));
}

}  // namespace

void register_import(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<ImportArguments>();
  CLI::App* command = app.add_subcommand("import", "Commit the content of a directory, as it is");
  command->add_option("DIR", arguments->directory, "The directory to import")->required();
  command->add_option("-m,--message", arguments->message, "The commit message (default: names the directory)")
      ->type_name("M");
  arguments->given.add_to(*command, {RequestPart::commit, RequestPart::asker});
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "One commit makes the branch (or the directory --path-prefix of it) exactly what DIR holds: files that DIR does\n"
      "not have are deleted there. Symbolic links and executable bits are kept. Left out and named are: what the\n"
      ".gitignore files of DIR and the repository's info/exclude ignore and the branch does not have yet\n"
      "(--include-ignored imports it), names that git reserves (.git), sockets, fifos, devices and empty directories.\n"
      "What --exclude matches stays as the branch has it. A branch that does not exist is created. Where the branch\n"
      "asks for approval, the import waits for it too (exit status 123).\n"
      "With --host DIR is of this machine all the same: it is sent to the service while it is read.\n"
      "\n"
      "Examples:\n"
      "  escrow --repo data.git import ./dataset --message \"first import\"\n"
      "  escrow import ./model --branch experiments --path-prefix models/v2\n");
  command->callback([&options, &chosen, command, arguments] {
    arguments->of_this_machine = given_options(*command, {"--issuer"});
    chosen = [&options, arguments] { return import_directory(options, *arguments); };
  });
}

}  // namespace escrow::daemon
