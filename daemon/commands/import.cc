#include <sys/resource.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "api/json_document.h"
#include "daemon/commands/commands.h"
#include "daemon/config.h"
#include "daemon/directory_import.h"
#include "daemon/exit_status.h"
#include "daemon/progress_bar.h"
#include "daemon/repository_context.h"
#include "daemon/session_arguments.h"
#include "daemon/session_verbs.h"
#include "daemon/text_output.h"
#include "session/error.h"
#include "session/repo_path.h"
#include "session/tree_walk.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;

struct ImportArguments {
  std::string directory, message;
  SessionArguments session;
  bool json = false;
};

void check_directory(const std::string& directory) {
  struct stat about {};
  if (stat(directory.c_str(), &about) != 0) {
    throw Error(Errc::bad_request, "cannot import " + session::quote_path(directory) + ": " + std::strerror(errno));
  }
  if (!S_ISDIR(about.st_mode)) {
    throw Error(Errc::bad_request, "cannot import " + session::quote_path(directory) + ": it is not a directory");
  }
}

// One descriptor is open for each level of nesting.
void allow_many_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

ImportedTree read_directory(session::Session& session, const std::string& directory, const std::string& git_directory) {
  ProgressBar bar("Importing");
  const DirectorySize total = bar.is_shown() ? measure_directory(directory) : DirectorySize{};
  DirectoryImport import(session.quarantine(), git_directory, [&](const DirectorySize& done) {
    bar.update(done.bytes + done.files, total.bytes + total.files,
               plural(done.files, "file") + ", " + human_size(done.bytes));
  });
  return import.run(directory);
}

int report(const ImportArguments& arguments, const api::CommitAnswer& answer, const ImportedTree& imported,
           const session::SessionRecord& record) {
  if (arguments.json) {
    print_line(api::JsonObject()
                   .text("session", record.id.text())
                   .text("state", name_of(answer.state))
                   .text("branch", record.options.branch)
                   .id("commit", answer.commit)
                   .id("result", answer.result)
                   .counts("counts", answer.counts)
                   .number("files", imported.size.files)
                   .number("bytes", imported.size.bytes)
                   .conflicts("conflicts", answer.conflicts)
                   .omissions("omitted", imported.omitted)
                   .text());
    return exit_status_of(answer);
  }
  if (!imported.omitted.empty()) print("Left out of the commit:\n" + omission_lines(imported.omitted));
  if (!answer.conflicts.empty()) {
    tell("Others changed the same paths while the import ran:\n" + conflict_lines(answer.conflicts) +
         "Nothing was committed; what was imported is kept as refs/sessions/" + record.id.text() + ".");
    return kExitConflict;
  }
  const std::string what = plural(imported.size.files, "file") + ", " + human_size(imported.size.bytes) + ", ";
  if (answer.result) {
    print_line("Read " + what + human_counts(answer.counts) + ": session " + record.id.text() + " " +
               awaiting_words(record.id, *answer.result, answer.expires) + ".");
    return kExitAwaitsApproval;
  }
  if (answer.commit) {
    print_line("Imported " + what + "as commit " + answer.commit->hex() + " on " + record.options.branch + " (" +
               human_counts(answer.counts) + ").");
  } else {
    print_line("Imported nothing: " + what + "and branch " + record.options.branch + " has exactly that already.");
  }
  return kExitSuccess;
}

int import_into(const GlobalOptions& options, const ImportArguments& arguments) {
  const std::string directory = absolute_path(arguments.directory);
  check_directory(directory);
  allow_many_descriptors();
  RepositoryContext context(options);
  context.recover();
  session::SessionOptions opened = session_options(arguments.session, context.repository().references(), "import");
  opened.ephemeral = true;
  const std::unique_ptr<session::Session> session = context.sessions().open(opened, true);
  const std::string who = current_principal();
  try {
    const ImportedTree imported = read_directory(*session, directory, context.repository().git_directory());
    const session::TreeRoot before = session::tree_of_commit(session->quarantine(), session->record().base);
    const session::TreeRoot after = session::graft_tree(session->quarantine(), before, opened.prefix, imported.tree);
    const std::string name = std::filesystem::path(directory).filename().string();
    const std::string message = arguments.message.empty() ? "Import " + session::quote_path(name) : arguments.message;
    const session::CommitOutcome outcome = session->commit_tree(
        after, {.message = message, .exit_code = {}, .reason = session::Reason::success, .by_hand = false, .who = who});
    return report(arguments, commit_answer(*session, outcome), imported, session->record());
  } catch (...) {
    // Nothing of a failed import stays, whatever made it fail.
    if (session->record().state == session::State::open) {
      session->rollback(session::Reason::not_started, std::nullopt, who, false);
    }
    throw;
  }
}

}  // namespace

void register_import(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<ImportArguments>();
  CLI::App* command = app.add_subcommand("import", "Commit the content of a directory, as it is");
  command->add_option("DIR", arguments->directory, "The directory to import")->required();
  command->add_option("-m,--message", arguments->message, "The commit message (default: names the directory)")
      ->type_name("M");
  add_audit_options(*command, arguments->session);
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "One commit makes the branch (or the directory --path-prefix of it) exactly what DIR holds: files that DIR does\n"
      "not have are deleted there. Symbolic links and executable bits are kept, .gitignore is not applied; names that\n"
      "git reserves (.git), sockets, fifos, devices and empty directories are left out and named. A branch that does\n"
      "not exist is created. Where the branch asks for approval, the import waits for it too (exit status 123).\n"
      "\n"
      "Examples:\n"
      "  escrow --repo data.git import ./dataset --message \"first import\"\n"
      "  escrow import ./model --branch experiments --path-prefix models/v2\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return import_into(options, *arguments); }; });
}

}  // namespace escrow::daemon
