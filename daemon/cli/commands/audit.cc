#include <CLI/CLI.hpp>
#include <memory>

#include "daemon/cli/commands/commands.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"
#include "session/base/duration.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;
using session::SessionRecord;

struct AuditArguments {
  std::string session, branch, since;
  std::vector<std::string> states;
  bool json = false;
};

std::set<session::State> states_of(const std::vector<std::string>& names) {
  std::set<session::State> states;
  for (const std::string& name : names) {
    const std::optional<session::State> state = session::state_from_name(name);
    if (!state || *state == session::State::open || *state == session::State::committing) {
      throw Error(Errc::bad_request, "--state " + session::quote_path(name) + " is not committed, commit_failed, "
                                     "rolled_back or awaiting_approval");
    }
    states.insert(*state);
  }
  return states;
}

AuditFilter filter_of(SessionSource& sessions, const AuditArguments& arguments) {
  AuditFilter filter{.session = {}, .branch = arguments.branch, .states = states_of(arguments.states), .since = {}};
  if (!arguments.session.empty()) filter.session = sessions.resolve(arguments.session);
  if (!arguments.since.empty()) filter.since = session::parse_duration(arguments.since, "--since");
  return filter;
}

// Every byte that does not print is escaped as git does; what a shell would take apart is in quotes.
std::string command_text(const std::vector<std::string>& command) {
  std::string text;
  for (const std::string& argument : command) {
    std::string word = session::quote_path(argument);
    const bool is_plain = word.find_first_of(" '|&;<>()$`*?[]#~!{}") == std::string::npos && !word.empty();
    if (!is_plain && word.front() != '"') word = "'" + word + "'";
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

std::string outcome_of(const SessionRecord& record) {
  std::string text = name_of(record.reason);
  if (record.exit_code && *record.exit_code != 0) text += " " + std::to_string(*record.exit_code);
  return text;
}

std::string count_of(const SessionRecord& record) {
  if (!record.counts) return "not counted";
  return "+" + std::to_string(record.counts->added) + " ~" + std::to_string(record.counts->modified) + " -" +
         std::to_string(record.counts->deleted);
}

void print_entry(const api::AuditResource& entry) {
  const SessionRecord& record = entry.view.record;
  const session::SessionOptions& options = record.options;
  const auto hex = [](const std::optional<session::ObjectId>& id) { return id ? id->hex() : std::string(); };
  std::vector<std::vector<std::string>> rows = {
      {"  state:", std::string(name_of(record.state)) + ", " + outcome_of(record)},
      {"  branch:", session::quote_path(options.branch)},
      {"  prefix:", session::quote_path(options.prefix.text())},
      {"  committer:", options.audit.committer},
      {"  issuer:", options.audit.issuer},
      {"  source:", options.audit.source},
      {"  image:", options.audit.image},
      {"  trigger:", options.audit.trigger},
      {"  trigger id:", options.audit.trigger_id},
      {"  command:", command_text(options.command)},
      {"  changes:", record.counts ? human_counts(*record.counts) : "not counted"},
      {"  denied:", plural(entry.denied_calls, "call")},
      {"  base:", hex(record.base)},
      {"  result:", hex(record.result)},
      {"  commit:", hex(record.commit)},
      {"  reads:", record.reads},
      {"  reviewer:", record.reviewer},
      {"  comment:", record.review_comment},
      {"  last error:", session::quote_path(record.last_error)}};
  std::erase_if(rows, [](const auto& row) { return row[1].empty() || row[1] == "\"\""; });
  print_line("session " + record.id.text());
  print(table(rows));
  for (const std::string& path : record.conflicts) print_line("  conflict: " + session::quote_path(path));
  std::vector<std::vector<std::string>> history;
  for (const api::AuditResource::Step& step : entry.history) {
    history.push_back({"  " + human_time(step.time.seconds, 0), name_of(step.to), step.who,
                       session::quote_path(step.why)});
  }
  print(table(history));
  print("\n");
}

void print_table(const std::vector<api::AuditResource>& entries) {
  std::vector<std::vector<std::string>> rows = {
      {"SESSION", "ENDED", "STATE", "WHY", "BRANCH", "COMMITTER", "REVIEWER", "CHANGES", "DENIED", "COMMAND"}};
  for (const api::AuditResource& entry : entries) {
    const SessionRecord& record = entry.view.record;
    rows.push_back({record.id.text(), human_time(record.changed.seconds, 0), name_of(record.state), outcome_of(record),
                    session::quote_path(record.options.branch), record.options.audit.committer,
                    record.reviewer.empty() ? "-" : record.reviewer, count_of(record),
                    std::to_string(entry.denied_calls), command_text(record.options.command)});
  }
  print(table(rows));
}

int audit(const GlobalOptions& options, const AuditArguments& arguments) {
  const std::unique_ptr<SessionSource> sessions = session_source(options);
  const std::vector<api::AuditResource> entries = sessions->audit(filter_of(*sessions, arguments));
  if (arguments.json) {
    print("[");
    for (std::size_t at = 0; at < entries.size(); ++at) print((at == 0 ? "" : ",") + api::to_json(entries[at]));
    print("]\n");
  } else if (entries.empty()) {
    print_line("No session that has ended or awaits approval matches.");
  } else if (!arguments.session.empty()) {
    for (const api::AuditResource& entry : entries) print_entry(entry);
  } else {
    print_table(entries);
  }
  return kExitSuccess;
}

}  // namespace

void register_audit(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<AuditArguments>();
  CLI::App* command = app.add_subcommand("audit", "Show what became of sessions, also of those that left no commit");
  command->add_option("--session", arguments->session, "Only this one, with its history")->type_name("ID");
  command->add_option("--branch", arguments->branch, "Only sessions on this branch")->type_name("B");
  command
      ->add_option("--state", arguments->states,
                   "Only committed, commit_failed, rolled_back or awaiting_approval (may be repeated)")
      ->type_name("STATE")
      ->allow_extra_args(false);
  command->add_option("--since", arguments->since, "Only what happened in this time: 24h, 7d")->type_name("TIME");
  command->add_flag("--json", arguments->json, "Print a JSON array, with everything");
  command->footer(
      "Every session that has ended or awaits approval: who, what ran, how it ended and why, what changed, how many\n"
      "calls a policy denied, who reviewed it. What a session that was rolled back had changed is not counted, unless\n"
      "it had been sealed. `escrow gc` forgets records older than `git config escrow.auditRetention` (90d).\n"
      "\n"
      "Examples:\n"
      "  escrow audit --since 7d --state rolled_back\n"
      "  escrow audit --session 3f9c\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return audit(options, *arguments); }; });
}

}  // namespace escrow::daemon
