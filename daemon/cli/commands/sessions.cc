#include <CLI/CLI.hpp>
#include <memory>

#include "api/protocol.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"
#include "session/repo_path.h"

namespace escrow::daemon {
namespace {

struct SessionsArguments {
  bool open_only = false;
  bool json = false;
};

std::string reason_of(const session::SessionRecord& record) {
  if (record.state == session::State::awaiting_approval) {
    return "result " + short_id(*record.result) +
           (record.expires ? " until " + human_time(record.expires->seconds, 0) : "");
  }
  if (record.reason == session::Reason::none) return record.last_error.empty() ? "" : "last commit failed";
  std::string text = name_of(record.reason);
  if (record.exit_code && *record.exit_code != 0) text += " " + std::to_string(*record.exit_code);
  return text;
}

std::string attachment_of(session::Attachment attachment, const session::SessionRecord& record) {
  if (attachment == session::Attachment::none) return "-";
  return name_of(attachment) + (record.mountpoint.empty() ? "" : " " + session::quote_path(record.mountpoint));
}

int sessions(const GlobalOptions& options, const SessionsArguments& arguments) {
  std::vector<api::SessionView> views = session_source(options)->list();
  if (arguments.open_only) {
    std::erase_if(views, [](const api::SessionView& view) { return session::is_final(view.record.state); });
  }
  if (arguments.json) {
    print_line(api::to_json(views));
    return kExitSuccess;
  }
  if (views.empty()) {
    print_line("There are no sessions.");
    return kExitSuccess;
  }
  const session::Timestamp now = session::SystemClock().now();
  std::vector<std::vector<std::string>> rows = {
      {"SESSION", "STATE", "BRANCH", "OPENED", "COMMITTER", "REASON", "ATTACHED"}};
  for (const api::SessionView& view : views) {
    const session::SessionRecord& record = view.record;
    rows.push_back({record.id.text(), name_of(record.state), session::quote_path(record.options.branch),
                    human_age(record.created, now), record.options.audit.committer, reason_of(record),
                    attachment_of(view.attachment, record)});
  }
  print(table(rows));
  return kExitSuccess;
}

}  // namespace

void register_sessions(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<SessionsArguments>();
  CLI::App* command = app.add_subcommand("sessions", "List the sessions: open, waiting, failed and done");
  command->add_flag("--open", arguments->open_only, "Only those that are not done");
  command->add_flag("--json", arguments->json, "Print a JSON array");
  command->footer(
      "ATTACHED is where a session is mounted; `lost` means that its host process died: the session is whole,\n"
      "`escrow mount --session` or `escrow commit` goes on with it.\n"
      "\n"
      "Example:\n"
      "  escrow sessions --open --json | jq -r '.[].session'\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return sessions(options, *arguments); }; });
}

}  // namespace escrow::daemon
