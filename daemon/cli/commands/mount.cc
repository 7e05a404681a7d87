#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "api/json_document.h"
#include "daemon/cli/background.h"
#include "daemon/cli/commands/commands.h"
#include "daemon/cli/commands/mounting.h"
#include "daemon/cli/request_arguments.h"
#include "daemon/client/remote_opening.h"
#include "daemon/client/remote_sessions.h"
#include "daemon/client/service_client.h"
#include "daemon/client/session_source.h"
#include "daemon/console/text_output.h"
#include "daemon/host/kept_mounts.h"
#include "daemon/host/config.h"
#include "daemon/host/denial_trace.h"
#include "daemon/host/io_choice.h"
#include "daemon/host/local_author.h"
#include "daemon/host/mount_options.h"
#include "daemon/host/mount_service.h"
#include "daemon/host/mountpoint.h"
#include "daemon/host/repository_context.h"
#include "daemon/host/session_access.h"
#include "daemon/host/session_git.h"
#include "daemon/host/session_host.h"
#include "daemon/process/exit_status.h"
#include "daemon/process/file_descriptor.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;

struct Arguments {
  RequestArguments given;
  MountArguments mount;
  std::vector<std::string> option_lists, shown_git;
  bool foreground = false, with_changes = false;
  bool json = false;
};

std::unique_ptr<session::Session> open_or_attach(RepositoryContext& context, const std::string& place,
                                                 const MountArguments& arguments) {
  if (arguments.session.empty()) {
    session::SessionOptions options = session_options(arguments.opened, context.references(), "manual");
    set_local_author(options, arguments.opened, context.repository().git_directory());
    const std::optional<GitTerms> git = git_terms(arguments.opened.git, true, options, context.repository(), place);
    return context.sessions().open(options, arguments.opened.branch.empty(), session::SessionId::generate(),
                                   preparation_of(arguments.opened, git, options, context.repository()));
  }
  const session::SessionId id = context.sessions().resolve(arguments.session);
  const session::SessionRecord record = context.sessions().status(id).record;
  if (session::is_final(record.state)) {
    throw Error(Errc::wrong_state, "cannot mount session " + id.text() + ": it is already " + name_of(record.state));
  }
  std::unique_ptr<session::Session> session = attach(context, id);
  if (!arguments.opened.mounts.specs.empty()) {
    KeptMounts mounts = kept_mounts(session->directory());
    add_mounts(mounts, arguments.opened.mounts.specs);
    keep_mounts(session->directory(), mounts, record.options, context.repository());
  }
  context.repository().catalog().remark(id, context.clock().now(), current_principal(), "mounted it");
  return session;
}

std::string announcement(const Arguments& arguments, const SessionHost& host, const session::SessionId& id) {
  if (!arguments.json) return id.text() + "\n";
  return api::JsonObject().text("session", id.text()).text("mountpoint", host.mountpoint()).text() + "\n";
}

// The mountpoint, checked; what a dead host of the same session left there is taken away first.
std::string free_mountpoint(RepositoryContext& context, const MountArguments& arguments) {
  if (!arguments.session.empty()) {
    const session::SessionId id = context.sessions().resolve(arguments.session);
    wait_for_release(context, id);
    const session::SessionManager::Listed listed = context.sessions().status(id);
    if (listed.attachment == session::Attachment::lost) {
      clear_dead_mount(listed.record.mountpoint, "escrow:" + id.text());
    }
  }
  return check_mountpoint(arguments.mountpoint, context.repository().git_directory());
}

int host_session(const GlobalOptions& options, const Arguments& arguments, const Announce& announce) {
  const FileDescriptor signals = take_leave_signals();
  RepositoryContext context(options);
  context.recover();
  SessionHost::Options hosted;
  hosted.mount.mountpoint = free_mountpoint(context, arguments.mount);
  hosted.mount.xattrs = arguments.mount.opened.xattr == "user";
  hosted.mount.io_uring = arguments.mount.opened.io_uring != "off";
  if (!arguments.mount.trace.empty())
    hosted.trace = std::make_shared<DenialTrace>(arguments.mount.trace);
  hosted.mount.allow_other = arguments.mount.allow_other || geteuid() == 0;
  if (!arguments.mount.allow_other) {
    hosted.mount.root_mask = closed_to_others(hosted.mount.mountpoint, context.repository().git_directory());
  }
  hosted.mount.extra_options = arguments.mount.kernel_options;
  hosted.place = {.is_seen = true, .sees_others = !arguments.mount.in_container};
  std::unique_ptr<session::Session> session = open_or_attach(context, options.repository, arguments.mount);
  if (arguments.with_changes) {
    if (const std::string words = open_with_changes(context, session); !words.empty()) tell("escrow: " + words);
  }
  hosted.git = noted_git_terms(session->directory());
  hosted.mount.read_only = session->record().options.read_only;
  const session::SessionId id = session->id();
  const bool is_new = arguments.mount.session.empty();
  hosted.git_viewer = {.hand = hand_of_user(getuid()), .shown = arguments.shown_git, .shows_entries = is_new};
  std::unique_ptr<SessionHost> host;
  try {
    const session::SessionOptions terms = session->record().options;
    IoChoice io = choose_io(arguments.mount.opened, needs_of_policies(terms.policies, terms.prefix.text()),
                            terms.limits, kept_mounts(session->directory()).entries);
    hosted.mount.io = io.mode;
    hosted.io_reason = std::move(io.reason);
    host = std::make_unique<SessionHost>(std::move(session), hosted, context.repository(), context.log());
  } catch (...) {
    // A session that never was seen by anybody does not stay behind.
    session.reset();
    if (is_new) context.sessions().roll_back(id, session::Reason::not_started, {}, current_principal());
    throw;
  }
  if (const std::string& words = host->words_about_hidden_git(); !words.empty()) tell("escrow: " + words);
  announce(announcement(arguments, *host, id));
  serve_mount(*host, signals);
  const bool ended = host->has_ended();
  if (!ended) {
    const std::string warning = host->leave();
    if (!warning.empty()) tell("escrow: " + warning);
  }
  host.reset();
  if (arguments.foreground) {
    tell(ended ? "Session " + id.text() + " has ended: `escrow status " + id.text() + "` shows how."
               : "Session " + id.text() + " stays open and is detached.");
  }
  return kExitSuccess;
}

void check_arguments(const Arguments& arguments) {
  const SessionRequest& opened = arguments.mount.opened;
  choose_io(opened, needs_of_policies(opened.policies.documents, opened.path_prefix), {}, opened.mounts.specs);
  if (!arguments.mount.session.empty() && !opened.policies.documents.empty()) {
    throw Error(Errc::bad_request, "--policy cannot be given with --session: a session keeps the policies it was "
                                   "opened with, and they hold here, too");
  }
  if (!arguments.mount.session.empty() && !opened.git.empty()) {
    throw Error(Errc::bad_request, "--git cannot be given with --session: a session has its .git from its opening on, "
                                   "or never");
  }
  if (!arguments.mount.session.empty() && arguments.with_changes) {
    throw Error(Errc::bad_request, "--with-changes cannot be given with --session: changes of a work tree are taken "
                                   "when a session is opened");
  }
  if (arguments.mount.session.empty() && !arguments.shown_git.empty())
    throw Error(Errc::bad_request, "--show-git needs --session: mount the new session without it, then again");
  if (arguments.mount.trace == "-" && !arguments.foreground) {
    throw Error(Errc::bad_request, "--trace - writes to the standard error of a process that stays; give a file, or "
                                   "--foreground");
  }
}

// The given options for which a service has no word; -o has some of them, too.
std::vector<std::string> of_this_machine(const Arguments& arguments) {
  std::vector<std::string> given;
  if (!arguments.mount.opened.issuer.empty()) given.emplace_back("--issuer");
  if (!arguments.mount.trace.empty()) given.emplace_back("--trace");
  if (arguments.foreground) given.emplace_back("--foreground");
  if (arguments.with_changes) given.emplace_back("--with-changes");
  return given;
}

// The service mounts it, where it is.
int mount_there(const GlobalOptions& options, const Arguments& arguments) {
  refuse_options_of_this_machine(of_this_machine(arguments));
  check_arguments(arguments);
  ServiceClient client(service_host(options), options);
  const std::string mountpoint = absolute_path(arguments.mount.mountpoint);
  std::string session = arguments.mount.session;
  if (session.empty()) {
    api::JsonObject body = remote_opening(client.repository(), arguments.mount.opened);
    body.text("mountpoint", mountpoint);
    add_mount_options(body, arguments.mount);
    session = api::session_from_json(client.post("/v1/sessions", body)).view.record.id.text();
  } else {
    session = session_source(options)->resolve(session).text();
    api::JsonObject body;
    body.text("mountpoint", mountpoint);
    add_mount_options(body, arguments.mount);
    if (!arguments.shown_git.empty()) body.texts("show_git", arguments.shown_git);
    client.post("/v1/sessions/" + session + "/mount", body);
  }
  print_line(arguments.json ? api::JsonObject().text("session", session).text("mountpoint", mountpoint).text()
                            : session);
  return kExitSuccess;
}

int mount(const GlobalOptions& given, Arguments arguments) {
  arguments.mount.opened = arguments.given.request();
  for (const std::string& list : arguments.option_lists) apply_mount_options(list, arguments.mount);
  if (!service_host(given).empty()) return mount_there(given, arguments);
  check_arguments(arguments);
  // The background process changes its directory: every path is made absolute first.
  GlobalOptions options = given;
  options.repository = repository_path(given);
  arguments.mount.mountpoint = absolute_path(arguments.mount.mountpoint);
  if (arguments.foreground) {
    return host_session(options, arguments, [](const std::string& output) {
      print(output);
      std::fflush(stdout);
    });
  }
  print(run_in_background([&](const Announce& announce) { return host_session(options, arguments, announce); }));
  return kExitSuccess;
}

}  // namespace

void check_place_to_mount(const GlobalOptions& options, const std::string& mountpoint) {
  check_mountpoint(mountpoint, RepositoryContext(options).repository().git_directory());
}

void mount_in_background(const GlobalOptions& options, const session::SessionId& id, const std::string& mountpoint) {
  Arguments arguments;
  arguments.mount.opened = arguments.given.request();
  arguments.mount.session = id.text();
  arguments.mount.mountpoint = mountpoint;
  run_in_background([&](const Announce& announce) { return host_session(options, arguments, announce); });
}

void register_mount(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("mount", "Mount a session and stay in the background; prints its id");
  command->add_option("MOUNTPOINT", arguments->mount.mountpoint, "An empty directory")->required();
  command->add_option("--session", arguments->mount.session, "Mount this detached session instead of a new one")
      ->type_name("ID");
  command->add_option("--show-git", arguments->shown_git,
                      "Show this .git, which another user or command made in the\n"
                      "session; git runs the programs that it names. Repeatable")
      ->type_name("PATH")
      ->allow_extra_args(false);
  arguments->given.add_to(*command, {RequestPart::commit, RequestPart::asker, RequestPart::view, RequestPart::mount});
  add_trace_option(*command, arguments->mount.trace);
  command->add_flag("--allow-other", arguments->mount.allow_other,
                    "Other users may use the mount (root's: also without,\n"
                    "where they can enter the mountpoint and the repository)");
  arguments->given.add_git_to(*command);
  add_with_changes_option(*command, arguments->with_changes);
  command->add_flag("--foreground", arguments->foreground, "Stay; SIGINT or SIGTERM detaches the session");
  command
      ->add_option("-o", arguments->option_lists,
                   "As in fstab: the options above (path_prefix=models, require_approval), session=, ro, allow_other, "
                   "in_container (work is done in it in containers only: such mounts share caches), and those of the "
                   "kernel (nosuid, noexec)")
      ->type_name("OPTIONS")
      ->allow_extra_args(false);
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(
      "`umount`, `fusermount3 -u` or `escrow unmount` leaves the session open and detached; `escrow commit` and\n"
      "`escrow rollback` end it from anywhere. What was written is what is committed, but for --exclude and what git\n"
      "would not add (.gitignore). With --host the escrowd there mounts it, on a directory of its machine: nosuid,\n"
      "nodev and, unless --symlinks any says otherwise (operators only), with links that lead out of the mount\n"
      "unreadable.\n"
      "\n"
      "Examples:\n"
      "  id=$(escrow --repo data.git mount /mnt/data)\n"
      "  escrow mount /mnt/data --session 3f9c\n"
      "  mount -t fuse.escrow /srv/data.git /mnt/data -o branch=main,path_prefix=models\n");
  command->callback([&options, &chosen, arguments] {
    chosen = [&options, arguments] { return mount(options, *arguments); };
  });
}

}  // namespace escrow::daemon
