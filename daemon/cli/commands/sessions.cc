#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <limits>
#include <memory>
#include <tuple>

#include "api/protocol.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/process/exit_status.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {
namespace {

constexpr std::size_t kUsualEnded = 100;

struct SessionsArguments {
  bool open_only = false;
  bool all = false;
  std::size_t limit = kUsualEnded;
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

// Oldest first.
std::vector<api::SessionView> views_of(SessionSource& source, const SessionsArguments& arguments) {
  std::vector<api::SessionView> views = source.unended();
  if (arguments.open_only || arguments.limit == 0) return views;
  SessionSource::Ended ended =
      source.ended(arguments.all ? std::numeric_limits<std::size_t>::max() : arguments.limit);
  if (!ended.are_all) {
    std::fprintf(stderr, "escrow: sessions that ended before the newest %zu are not listed; --all lists them\n",
                 arguments.limit);
  }
  views.insert(views.end(), std::make_move_iterator(ended.views.begin()), std::make_move_iterator(ended.views.end()));
  // One that ended in between is there twice.
  const auto key = [](const api::SessionView& view) { return std::tie(view.record.created, view.record.id); };
  std::ranges::stable_sort(views, {}, key);
  const auto twice = std::ranges::unique(views, {}, key);
  views.erase(twice.begin(), twice.end());
  return views;
}

int sessions(const GlobalOptions& options, const SessionsArguments& arguments) {
  const std::vector<api::SessionView> views = views_of(*session_source(options), arguments);
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
  CLI::Option* open_only = command->add_flag("--open", arguments->open_only, "Only those that are not done");
  CLI::Option* limit = command->add_option("--limit", arguments->limit, "Of those that are done the newest N (100)")
                           ->type_name("N")
                           ->excludes(open_only);
  command->add_flag("--all", arguments->all, "All that are done")->excludes(limit)->excludes(open_only);
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
