#include "daemon/cli/request_arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace escrow::daemon {
namespace {

// The default that a help text shows for a field.
std::string usual_text(const SessionRequestField& field) {
  static const SessionRequest kUsual;
  const auto* member = std::get_if<std::string SessionRequest::*>(&field.member);
  return member == nullptr ? std::string() : kUsual.**member;
}

}  // namespace

void RequestArguments::add_to(CLI::App& command, std::initializer_list<RequestPart> parts) {
  for (const SessionRequestField& field : session_request_fields()) {
    if (field.help.empty() || std::find(parts.begin(), parts.end(), field.part) == parts.end()) continue;
    Given& given = given_[field.name];
    const std::string name = option_name(field), help(field.help);
    if (std::holds_alternative<bool SessionRequest::*>(field.member)) {
      command.add_flag(name, given.flag, help);
      continue;
    }
    CLI::Option* option = command.add_option(name, given.texts, help)->allow_extra_args(false);
    if (!field.value.empty()) option->type_name(std::string(field.value));
    if (!field.choices.empty())
      option->check(CLI::IsMember(std::vector<std::string>(field.choices.begin(), field.choices.end())));
    if (!field.variable.empty()) option->envname(std::string(field.variable));
    if (const std::string usual = usual_text(field); !usual.empty()) option->default_str(usual);
    const bool is_list = std::holds_alternative<std::vector<std::string> SessionRequest::*>(field.member) ||
                         std::holds_alternative<PolicyDocuments SessionRequest::*>(field.member) ||
                         std::holds_alternative<MountEntries SessionRequest::*>(field.member);
    if (!is_list) option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  }
}

void RequestArguments::add_git_to(CLI::App& command) {
  CLI::Option* without = command.add_flag("--no-git", no_git_, "Leave the session without a .git");
  command
      .add_flag("--git", git_,
                "Give the session a .git of its own: git status, diff, log, blame, stash and commit work in it\n"
                "(default, where the command sees the whole repository as a user of this machine)")
      ->excludes(without);
  command
      .add_option("--git-commits", git_commits_,
                  "What becomes of commits made with it. squash (default): their messages are that of the commit;\n"
                  "keep: each lands as a commit of its own, and what none of them has as one more")
      ->type_name("squash|keep")
      ->check(CLI::IsMember({"squash", "keep"}))
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw)
      ->excludes(without);
}

SessionRequest RequestArguments::request() const {
  SessionRequest request;
  if (no_git_) request.git = "off";
  if (git_) request.git = "squash";
  if (!git_commits_.empty()) request.git = git_commits_;
  for (const SessionRequestField& field : session_request_fields()) {
    const auto given = given_.find(field.name);
    if (given == given_.end()) continue;
    if (given->second.flag) set_request_field(request, field, "true", option_name(field));
    for (const std::string& text : given->second.texts) set_request_field(request, field, text, option_name(field));
  }
  return request;
}

bool RequestArguments::has(std::string_view name) const {
  const auto given = given_.find(name);
  return given != given_.end() && (given->second.flag || !given->second.texts.empty());
}

void add_trace_option(CLI::App& command, std::string& file) {
  command.add_option("--trace", file, "Append each denial to FILE as a line of JSON; - is standard error")
      ->type_name("FILE");
}

void add_with_changes_option(CLI::App& command, bool& given) {
  command.add_flag("--with-changes", given,
                   "Begin with what the work tree has uncommitted: changed, deleted and untracked files, but for what "
                   "git ignores");
}

}  // namespace escrow::daemon
