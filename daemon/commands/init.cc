#include <CLI/CLI.hpp>
#include <memory>

#include "api/json_document.h"
#include "daemon/commands/commands.h"
#include "daemon/config.h"
#include "daemon/exit_status.h"
#include "daemon/text_output.h"
#include "session/repo_path.h"
#include "storage/repository.h"

namespace escrow::daemon {
namespace {

struct InitArguments {
  std::string branch = "main";
  bool json = false;
};

int init(const GlobalOptions& options, const InitArguments& arguments) {
  const std::string path = repository_path(options);
  const bool created = storage::Repository::init(path, arguments.branch);
  if (arguments.json) {
    print_line(api::JsonObject().text("repository", path).flag("created", created).text());
  } else if (created) {
    print_line("Created the bare repository " + session::quote_path(path) + " on branch " + arguments.branch + ".");
  } else {
    print_line("The git repository " + session::quote_path(path) +
               " is ready for sessions; its branches are as they were.");
  }
  return kExitSuccess;
}

}  // namespace

void register_init(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<InitArguments>();
  CLI::App* command = app.add_subcommand("init", "Create a repository, or make an existing git repository ready");
  command->add_option("--branch", arguments->branch, "The branch of a new repository")
      ->type_name("B")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "Creates a bare git repository with Escrow's state in <gitdir>/escrow/. A git repository that is there already\n"
      "(bare or not) is adopted, its branches and files untouched. Doing it again changes nothing.\n"
      "\n"
      "Examples:\n"
      "  escrow --repo data.git init\n"
      "  escrow --repo ~/src/project init      # adopt; sessions commit to branches that are not checked out\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return init(options, *arguments); }; });
}

}  // namespace escrow::daemon
