#include <CLI/CLI.hpp>
#include <memory>

#include "api/json_document.h"
#include "api/protocol.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/client/remote_sessions.h"
#include "daemon/cli/session_argument.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/host/mount_entries.h"
#include "daemon/host/repository_context.h"
#include "daemon/process/exit_status.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {
namespace {

struct StatusArguments {
  std::string session;
  bool json = false;
};

std::string id_or(const std::optional<session::ObjectId>& id, const char* otherwise) {
  return id ? id->hex() : otherwise;
}

std::vector<std::vector<std::string>> rows_of(const api::SessionView& view, const session::Timestamp& now) {
  const session::SessionRecord& record = view.record;
  std::vector<std::vector<std::string>> rows = {
      {"session:", record.id.text()},
      {"state:", name_of(record.state)},
      {"attachment:", name_of(view.attachment)},
      {"branch:", session::quote_path(record.options.branch)},
      {"base:", id_or(record.base, "none, the branch did not exist")},
      {"head:",
       id_or(view.head, record.base ? "none, the branch was deleted" : "none, the branch does not exist yet") +
           (view.head == record.base ? " (unchanged)" : "")},
      {"opened:", human_age(record.created, now) + " for " + record.options.audit.committer},
  };
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) rows.push_back({name, value});
  };
  add("reason:", record.reason == session::Reason::none ? "" : name_of(record.reason));
  add("exit code:", record.exit_code ? std::to_string(*record.exit_code) : "");
  add("commit:", record.commit ? record.commit->hex() : "");
  add("result:", record.result ? record.result->hex() : "");
  if (record.state == session::State::awaiting_approval) {
    add("expires:", record.expires ? human_time(record.expires->seconds, 0) : "never");
  }
  add("reviewer:", record.reviewer);
  add("comment:", record.review_comment);
  add("prefix:", record.options.prefix.is_root() ? "" : session::quote_path(record.options.prefix.text()));
  add("isolation:", record.options.isolation == session::Isolation::snapshot ? "" : name_of(record.options.isolation));
  add("reads:", record.reads);
  add("mountpoint:", record.mountpoint.empty() ? "" : session::quote_path(record.mountpoint));
  if (view.counts) add("changes:", human_counts(*view.counts));
  if (view.usage) {
    add("staged:", plural(view.usage->staged_files, "file") + ", " + human_size(view.usage->staged_bytes));
  }
  if (view.io) add("I/O:", view.io->data + ", opens " + view.io->opens + " (" + view.io->reason + ")");
  if (!record.options.policies.empty()) add("policies:", std::to_string(record.options.policies.size()));
  if (view.denials && view.denials->count > 0) {
    add("denials:", plural(view.denials->count, "call") + ", " + plural(view.denials->kinds, "kind"));
  }
  add("resumes:", record.resumes ? record.resumes->text() : "");
  add("resumed as:", view.resumed_as ? view.resumed_as->text() : "");
  add("last error:", record.last_error);
  return rows;
}

std::string mount_line(const api::MountEntryView& mount) {
  return session::quote_path(mount.path) + ": " + session::quote_path(mount.source) + ", " + mount.mode +
         (mount.outside_transaction ? ", written through: outside of the transaction" : "") +
         (mount.hides ? ", hides what the repository has there" : "");
}

// Of a session that is mounted on this machine.
std::vector<api::MountEntryView> mounts_of(const GlobalOptions& options, const api::SessionView& view) {
  if (!service_host(options).empty() || view.attachment != session::Attachment::mounted) return {};
  RepositoryContext context(options);
  return noted_mounts(context.repository().directories().path_of(view.record.id));
}

std::vector<api::JsonObject> mounts_as_json(const std::vector<api::MountEntryView>& mounts) {
  std::vector<api::JsonObject> objects;
  for (const api::MountEntryView& mount : mounts) {
    api::JsonObject object;
    object.text("path", mount.path).text("source", mount.source).text("mode", mount.mode).flag("hides", mount.hides);
    object.flag("outside_transaction", mount.outside_transaction);
    objects.push_back(std::move(object));
  }
  return objects;
}

int status(const GlobalOptions& options, const StatusArguments& arguments) {
  const std::unique_ptr<SessionSource> source = session_source(options);
  const api::SessionView view = source->status(the_session(*source, arguments.session));
  const std::vector<api::MountEntryView> mounts = mounts_of(options, view);
  if (arguments.json) {
    if (mounts.empty()) {
      print_line(api::to_json(view));
    } else {
      print_line(api::JsonObject().session(view).objects("mounts", mounts_as_json(mounts)).text());
    }
    return kExitSuccess;
  }
  print(table(rows_of(view, session::SystemClock().now())));
  if (!mounts.empty()) {
    print_line("mount table, beside the repository:");
    for (const api::MountEntryView& mount : mounts) print_line("  " + mount_line(mount));
  }
  if (!view.record.conflicts.empty()) {
    print_line("conflicts:");
    for (const std::string& path : view.record.conflicts) print_line("  " + session::quote_path(path));
  }
  if (view.record.unresolved.empty() && !view.would_conflict.empty()) {
    print_line("a commit would conflict now (escrow resolve " + view.record.id.text() + "):");
    print(conflict_lines(view.would_conflict));
  }
  if (!view.record.unresolved.empty()) {
    print_line("unresolved (escrow resolve " + view.record.id.text() + "):");
    for (const session::Unresolved& one : view.record.unresolved) print_line("  " + session::quote_path(one.path));
  }
  if (!view.omitted.empty()) print("a commit leaves out:\n" + omission_lines(view.omitted, options.verbose));
  return kExitSuccess;
}

}  // namespace

void register_status(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<StatusArguments>();
  CLI::App* command = app.add_subcommand("status", "Show one session: state, base and head, what it would commit");
  add_session(*command, arguments->session);
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer("Example:\n  escrow status 3f9c\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return status(options, *arguments); }; });
}

}  // namespace escrow::daemon
