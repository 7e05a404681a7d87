// `escrow policy`: what policies say, without a session.
#include <CLI/CLI.hpp>
#include <memory>

#include "api/json_document.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/console/text_output.h"
#include "daemon/host/policy_files.h"
#include "daemon/process/exit_status.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {
namespace {

using session::AccessPolicy;

struct PolicyArguments {
  std::vector<std::string> files;
  std::string path, action;
  bool directory = false;
  bool json = false;
};

api::JsonObject json_of(session::Action action, const AccessPolicy::Decision& decision) {
  api::JsonObject object;
  object.text("action", session::name_of(action))
      .flag("allowed", decision.allowed)
      .number("policy", decision.policy + 1);
  if (decision.rule) object.number("rule", *decision.rule + 1).text("pattern", decision.pattern);
  object.text("why", AccessPolicy::describe(decision));
  return object;
}

std::unique_ptr<AccessPolicy> compiled(const PolicyArguments& arguments) {
  return compile_policies(read_policies(arguments.files), arguments.files);
}

int test(const PolicyArguments& arguments) {
  const session::RepoPath path = session::RepoPath::parse(arguments.path, "--path");
  const auto action = session::action_from_name(arguments.action);
  if (!action) {
    throw session::Error(session::Errc::bad_request, "--action " + session::quote_path(arguments.action) +
                                                         " is none: there are read, list, write, create, delete, "
                                                         "rename and metadata");
  }
  const AccessPolicy::Decision decision = compiled(arguments)->decide(path.text(), arguments.directory, *action);
  print_line(arguments.json ? json_of(*action, decision).text("path", path.text()).text()
                            : std::string(decision.allowed ? "allowed" : "denied") + " by " +
                                  AccessPolicy::describe(decision));
  return decision.allowed ? kExitSuccess : kExitRefused;
}

int explain(const PolicyArguments& arguments) {
  const session::RepoPath path = session::RepoPath::parse(arguments.path, "--path");
  const auto policy = compiled(arguments);
  std::vector<std::vector<std::string>> rows = {{"ACTION", "ANSWER", "DECIDED BY"}};
  std::vector<api::JsonObject> objects;
  for (const session::Action action : session::kAllActions) {
    const AccessPolicy::Decision decision = policy->decide(path.text(), arguments.directory, action);
    rows.push_back({session::name_of(action), decision.allowed ? "allowed" : "denied",
                    AccessPolicy::describe(decision)});
    objects.push_back(json_of(action, decision));
  }
  if (arguments.json) {
    print_line(api::JsonObject()
                   .text("path", path.text())
                   .flag("directory", arguments.directory)
                   .objects("actions", std::move(objects))
                   .text());
  } else {
    print(table(rows));
  }
  return kExitSuccess;
}

std::shared_ptr<PolicyArguments> add_common(CLI::App& command) {
  auto arguments = std::make_shared<PolicyArguments>();
  command.add_option("FILE", arguments->files, "Policies; each can only narrow what the others allow")->required();
  command.add_option("--path", arguments->path, "A path of the repository, its prefix included; / is its root")
      ->required()
      ->type_name("PATH");
  command.add_flag("--directory", arguments->directory, "It is a directory");
  command.add_flag("--json", arguments->json, "Print one JSON object");
  return arguments;
}

}  // namespace

void register_policy(CLI::App& app, const GlobalOptions&, Action& chosen) {
  CLI::App* policy = app.add_subcommand("policy", "Say what a policy allows, and which rule decides");
  policy->require_subcommand(1);
  policy->footer(
      "A policy is JSON: {\"default\": \"allow\" or \"deny\", \"rules\": [{\"effect\": \"allow\" or \"deny\",\n"
      "\"actions\": [read, list, write, create, delete, rename, metadata], \"paths\": [as in .gitignore]}]}.\n"
      "A deny wins over an allow, what no rule names follows the default, a pattern that matches a directory covers\n"
      "everything below it, and \"/\" is everything. `escrow run` and `escrow mount` take it with --policy FILE.\n"
      "\n"
      "Examples:\n"
      "  escrow policy test policy.json --action write --path models/a.bin\n"
      "  escrow policy explain team.json job.json --path secrets --directory\n");
  CLI::App* one =
      policy->add_subcommand("test", "Exit with 0 when an action is allowed on a path, 1 when it is denied");
  const auto tested = add_common(*one);
  one->add_option("--action", tested->action, "read, list, write, create, delete, rename or metadata")
      ->required()
      ->type_name("ACTION");
  one->callback([&chosen, tested] { chosen = [tested] { return test(*tested); }; });
  CLI::App* all = policy->add_subcommand("explain", "Show each action on a path, and the rule that decides it");
  const auto explained = add_common(*all);
  all->callback([&chosen, explained] { chosen = [explained] { return explain(*explained); }; });
}

}  // namespace escrow::daemon
