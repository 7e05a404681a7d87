#include <CLI/CLI.hpp>
#include <memory>
#include <utility>

#include "api/json_document.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/cli/commands/mounting.h"
#include "daemon/client/remote_sessions.h"
#include "daemon/client/service_client.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/host/config.h"
#include "daemon/process/exit_status.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"
#include "session/transaction/disputes.h"

namespace escrow::daemon {
namespace {

struct ResumeArguments {
  std::string session, mountpoint;
  bool json = false;
};

struct Resumption {
  session::SessionRecord older;
  SessionSource::Resumed made;
};

// The source goes before anything is mounted: the process that hosts the mount begins without threads.
Resumption resume_in(const GlobalOptions& options, const ResumeArguments& arguments) {
  const std::unique_ptr<SessionSource> sessions = session_source(options);
  const session::SessionId older = sessions->resolve(arguments.session);
  session::SessionRecord record = sessions->status(older).record;
  return {std::move(record), sessions->resume(older)};
}

// The new session may begin over other bytes than a serializable session had read. "" for any other older session.
std::string words_about_reads(const session::SessionRecord& older) {
  if (older.options.isolation != session::Isolation::serializable) return "";
  const std::string words = "\nSession " + older.id.text() + " was serializable, and the new one is not: whether its "
                            "work still holds is for you to judge.";
  if (older.conflicts.empty()) return words;
  std::string named;
  for (const std::string& path : older.conflicts) named += (named.empty() ? "" : ", ") + session::quote_path(path);
  return words + " Others changed what it had read or changed: " + named + ".";
}

std::string words_about(const Resumption& done) {
  const session::SessionRecord& record = done.made.record;
  const std::string& older = done.older.id.text();
  const std::string& id = record.id.text();
  std::string words = "Session " + id + " has what session " + older + " did, on the head of " +
                      session::quote_path(record.options.branch) + " (" + human_counts(done.made.counts) + ").";
  for (const session::SessionId& one : done.made.earlier)
    words += "\nSession " + older + " was resumed before, as " + one.text() + ".";
  words += words_about_reads(done.older);
  if (record.unresolved.empty()) return words + " No path conflicts: `escrow commit " + id + "` commits it.";
  return words + "\nBoth it and the branch changed:\n" +
         conflict_lines(session::conflicts_of(record.unresolved).paths) +
         "It shows its own side. `escrow resolve " + id +
         " PATH... --mine|--theirs|--merged` settles each, then `escrow commit " + id + "`.";
}

// Where the service is, by itself.
void mount_resumed(const GlobalOptions& options, const session::SessionId& id, const std::string& mountpoint) {
  ServiceClient(service_host(options), options)
      .post("/v1/sessions/" + id.text() + "/mount", api::JsonObject().text("mountpoint", mountpoint));
}

void mount_it(const GlobalOptions& options, const session::SessionId& id, const std::string& mountpoint) {
  try {
    if (!service_host(options).empty()) return mount_resumed(options, id, mountpoint);
    mount_in_background(options, id, mountpoint);
  } catch (const session::Error& error) {
    throw session::Error(error.code(), "session " + id.text() + " is open, but not mounted (`escrow mount DIR "
                                       "--session " + id.text() + "` does it): " + error.what());
  }
}

int resume(const GlobalOptions& given, const ResumeArguments& arguments) {
  GlobalOptions options = given;
  const std::string mountpoint = arguments.mountpoint.empty() ? "" : absolute_path(arguments.mountpoint);
  if (service_host(given).empty()) {
    options.repository = repository_path(given);
    if (!mountpoint.empty()) check_place_to_mount(options, mountpoint);
  }
  const Resumption done = resume_in(options, arguments);
  const session::SessionRecord& record = done.made.record;
  if (!mountpoint.empty()) mount_it(options, record.id, mountpoint);
  if (arguments.json) {
    print_line(api::JsonObject()
                   .text("session", record.id.text())
                   .text("resumes", done.older.id.text())
                   .text("mountpoint", mountpoint)
                   .conflicts("conflicts", session::conflicts_of(record.unresolved).paths)
                   .text());
    return kExitSuccess;
  }
  print_line(record.id.text());
  tell(words_about(done));
  return kExitSuccess;
}

}  // namespace

void register_resume(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<ResumeArguments>();
  CLI::App* command =
      app.add_subcommand("resume", "Open a new session with what one that conflicted or failed had done");
  command->add_option("SESSION", arguments->session, "The session that ended, or a unique prefix of its id")
      ->required();
  command->add_option("DIR", arguments->mountpoint, "An empty directory: mount the new session there");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "For a session whose commit met a conflict (exit status 122), and for one that was rolled back and kept its\n"
      "result. The new session begins on the branch's head, with what did not conflict; conflicting paths are as the\n"
      "older session had them, until `escrow resolve` settles them. Prints the new session's id.\n"
      "\n"
      "Example:\n"
      "  id=$(escrow resume 3f9c work) && escrow resolve $id config.yaml --theirs && escrow commit $id\n");
  command->callback(
      [&options, &chosen, arguments] { chosen = [&options, arguments] { return resume(options, *arguments); }; });
}

}  // namespace escrow::daemon
