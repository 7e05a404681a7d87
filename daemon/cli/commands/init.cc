#include <CLI/CLI.hpp>
#include <memory>

#include "api/json_document.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/client/remote_sessions.h"
#include "daemon/client/service_client.h"
#include "daemon/console/text_output.h"
#include "daemon/host/config.h"
#include "daemon/process/exit_status.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "storage/repository/repository.h"

namespace escrow::daemon {
namespace {

struct InitArguments {
  std::string branch = "main";
  bool is_branch_given = false, begins_new_catalog = false, json = false;
};

struct Made {
  std::string path;
  bool created = false;  // there was none before
};

Made init_here(const GlobalOptions& options, const InitArguments& arguments) {
  const std::string path = repository_path(options);
  using Catalog = storage::Repository::Catalog;
  const Catalog catalog = arguments.begins_new_catalog ? Catalog::begin_anew : Catalog::keep;
  return {.path = path, .created = storage::Repository::init(path, arguments.branch, catalog)};
}

// The service makes it where its configuration has a place for it, and registers it.
Made init_there(const GlobalOptions& options, const InitArguments& arguments) {
  if (arguments.begins_new_catalog) {
    throw session::Error(session::Errc::bad_request,
                         "--new-catalog is for a repository on this machine; run it there without --host");
  }
  ServiceClient client(service_host(options), options);
  if (client.named_repository().empty()) {
    throw session::Error(session::Errc::bad_request,
                         "with --host a repository is made under the name that --repo (or ESCROW_REPO) gives; give "
                         "one");
  }
  api::JsonObject body;
  body.text("name", client.named_repository()).flag("create", true).text("branch", arguments.branch);
  api::RemoteRepository made = api::repository_from_json(client.post("/v1/repositories", body));
  return {.path = std::move(made.path), .created = made.is_made};
}

int init(const GlobalOptions& options, const InitArguments& arguments) {
  const auto& [path, created] =
      service_host(options).empty() ? init_here(options, arguments) : init_there(options, arguments);
  if (arguments.json) {
    print_line(api::JsonObject().text("repository", path).flag("created", created).text());
  } else if (created) {
    print_line("Created the bare repository " + session::quote_path(path) + " on branch " + arguments.branch + ".");
  } else {
    print_line("The git repository " + session::quote_path(path) +
               " is ready for sessions; its branches are as they were" +
               (arguments.is_branch_given ? ": --branch is for a repository that is made" : "") + ".");
  }
  return kExitSuccess;
}

}  // namespace

void register_init(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<InitArguments>();
  CLI::App* command = app.add_subcommand("init", "Create a repository, or make an existing git repository ready");
  const CLI::Option* const branch =
      command->add_option("--branch", arguments->branch, "The branch of a new repository")
          ->type_name("B")
          ->capture_default_str();
  command->add_flag("--new-catalog", arguments->begins_new_catalog,
                    "Begin a new catalog of sessions where the old one is lost; its sessions are set aside");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "Creates a bare git repository with Escrow's state in <gitdir>/escrow/. A git repository that is there already\n"
      "(bare or not) is adopted, its branches and files untouched. Doing it again changes nothing.\n"
      "Where the catalog of sessions, <gitdir>/escrow/catalog.db, is lost, every command is refused until it is\n"
      "restored. --new-catalog begins another, and the sessions wait in <gitdir>/escrow/orphans/ for the old one.\n"
      "With --host the service makes the repository below its repository_roots and registers it as --repo says, which\n"
      "is a name there; it does so for operators alone.\n"
      "\n"
      "Examples:\n"
      "  escrow --repo data.git init\n"
      "  escrow --repo ~/src/project init      # adopt; sessions commit to branches that are not checked out\n"
      "  escrow --host unix:///run/escrowd/escrowd.sock --repo data init\n");
  command->callback([&options, &chosen, arguments, branch] {
    arguments->is_branch_given = branch->count() > 0;
    chosen = [&options, arguments] { return init(options, *arguments); };
  });
}

}  // namespace escrow::daemon
