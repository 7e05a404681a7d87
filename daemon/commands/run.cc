// `escrow run`: one command over one session, and what becomes of the session by the way the command ends.
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "daemon/ballast.h"
#include "daemon/commands/commands.h"
#include "daemon/config.h"
#include "daemon/confinement.h"
#include "daemon/denial_trace.h"
#include "daemon/exit_status.h"
#include "daemon/io_choice.h"
#include "daemon/repository_context.h"
#include "daemon/run_mountpoint.h"
#include "daemon/run_result.h"
#include "daemon/runner.h"
#include "daemon/session_arguments.h"
#include "daemon/session_host.h"
#include "daemon/user_namespace.h"
#include "session/duration.h"
#include "session/error.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;
using session::LogLevel;
using session::parse_duration;

constexpr const char* kHelp =
    "The mount is the command's working directory; ESCROW_SESSION and ESCROW_MOUNT are set in its environment.\n"
    "Exit status 0 of the command commits what it wrote as one commit; everything else rolls it back.\n"
    "What was written is what is committed: .gitignore is not applied, --exclude is.\n"
    "SIGINT and SIGTERM to `escrow run` go to the command's process group, after --grace SIGKILL follows, and the\n"
    "session is rolled back. On a terminal the command is in the foreground, and Ctrl-C is the command's own.\n"
    "\n"
    "Exit status: 0 committed or nothing changed; the command's own (128+n for signal n) when that rolled it back;\n"
    "122 conflict; 123 the result awaits approval; 124 timeout; 125 Escrow failed; 126 the command could not be run;\n"
    "127 it was not found.\n";

struct RunArguments {
  SessionArguments session;
  std::string mountpoint, timeout, grace, result, message;
  std::vector<std::string> environment;
  bool keep_on_failure = false;
  bool has_umask = false;
  bool confined = false;
  std::string network;  // "none", "host"; empty: host, but none for a confined command
  std::vector<std::string> command;
};

void say(const std::string& sentence) {
  const std::string line = "escrow: " + sentence + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

bool names(const std::string& entry, std::string_view name) {
  return entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name);
}

void set_variable(std::vector<std::string>& environment, const std::string& name, const std::string& value) {
  std::erase_if(environment, [&](const std::string& entry) { return names(entry, name); });
  environment.push_back(name + "=" + value);
}

// This process's environment (or what a confined command begins with), what --env adds, and where the command is.
std::vector<std::string> command_environment(const RunArguments& arguments, const std::string& session_id,
                                             const std::string& mountpoint, const std::string& git_directory) {
  std::vector<std::string> environment;
  if (arguments.confined) environment = confined_environment();
  for (char** entry = environ; *entry && !arguments.confined; ++entry) environment.emplace_back(*entry);
  // A relative one would mean something else in the mount.
  if (std::getenv("ESCROW_REPO") && !arguments.confined) set_variable(environment, "ESCROW_REPO", git_directory);
  std::erase_if(environment, [](const std::string& entry) { return names(entry, "OLDPWD"); });
  set_variable(environment, "PWD", mountpoint);
  for (const std::string& entry : arguments.environment) {
    const std::size_t equals = entry.find('=');
    set_variable(environment, entry.substr(0, equals), entry.substr(equals + 1));
  }
  set_variable(environment, "ESCROW_SESSION", session_id);
  set_variable(environment, "ESCROW_MOUNT", mountpoint);
  return environment;
}

mode_t current_umask() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return mask;
}

// nullopt: the command stays who we are.
std::optional<CommandSpec::Identity> command_identity(const SessionArguments& arguments) {
  const uid_t uid = arguments.uid.value_or(::getuid());
  const gid_t gid = arguments.gid.value_or(::getgid());
  if (uid == ::geteuid() && gid == ::getegid()) return std::nullopt;
  CommandSpec::Identity identity{uid, gid, {gid}};
  if (const passwd* user = ::getpwuid(uid)) {
    int count = 256;
    std::vector<gid_t> groups(static_cast<std::size_t>(count));
    if (::getgrouplist(user->pw_name, gid, groups.data(), &count) >= 0) {
      groups.resize(static_cast<std::size_t>(count));
      identity.groups = groups;
    }
  }
  return identity;
}

// One run from its options to its exit status. Members in the order in which they come to be.
class Run {
 public:
  Run(const GlobalOptions& options, const RunArguments& arguments) : options_(options), arguments_(arguments) {}

  int execute();

 private:
  void check_arguments();
  void prepare_process();
  void open_session();
  CommandSpec command_spec() const;
  std::string visible_mountpoint() const;
  CommandEnd run_command();
  void end_session(const CommandEnd& end);
  void commit();
  void roll_back(session::Reason reason, std::optional<int> status);
  void abandon(const CommandEnd& end);
  void keep_open();
  int report(const CommandEnd& end);
  int report_failure(const Error& error);

  const GlobalOptions& options_;
  const RunArguments& arguments_;
  std::optional<std::chrono::milliseconds> timeout_;
  std::chrono::milliseconds grace_ = kDefaultGrace;
  mode_t umask_ = 022;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<RepositoryContext> context_;
  std::unique_ptr<RunMountpoint> mountpoint_;
  std::optional<session::SessionId> id_;
  std::optional<Ballast> ballast_;
  std::unique_ptr<SessionHost> host_;
  api::RunResult result_;
};

void Run::check_arguments() {
  choose_io(arguments_.session, !arguments_.session.policies.empty());
  if (!arguments_.timeout.empty()) timeout_ = parse_duration(arguments_.timeout, "--timeout");
  if (!arguments_.grace.empty()) grace_ = parse_duration(arguments_.grace, "--grace");
  for (const std::string& entry : arguments_.environment) {
    if (entry.find('=') == std::string::npos || entry.starts_with('=')) {
      throw Error(Errc::bad_request, "--env \"" + entry + "\" is not of the form NAME=VALUE");
    }
  }
  if (arguments_.confined) {
    check_can_confine();
    check_sandbox_mountpoint(visible_mountpoint());
  } else if (arguments_.network == "none") {
    check_can_cut_network();
  }
  umask_ = arguments_.has_umask ? parse_umask(arguments_.session.umask, "--umask") : current_umask();
  if (command_identity(arguments_.session) && ::geteuid() != 0) {
    throw Error(Errc::bad_request, "--uid and --gid name another user or group than yours; only root may run a "
                                   "command as somebody else");
  }
}

// While there is one thread and nothing is open.
void Run::prepare_process() {
  if (find_mount_access() == MountAccess::user_namespace) enter_user_namespace();
  runner_ = std::make_unique<Runner>();
}

void Run::open_session() {
  context_ = std::make_unique<RepositoryContext>(options_);
  context_->recover();
  session::SessionOptions session_options =
      daemon::session_options(arguments_.session, context_->repository().references(), "sandbox");
  std::shared_ptr<DenialTrace> trace;
  if (!arguments_.session.trace.empty()) trace = std::make_shared<DenialTrace>(arguments_.session.trace);
  session_options.ephemeral = true;
  session_options.keep_on_failure = arguments_.keep_on_failure;
  session_options.command = arguments_.command;
  if (arguments_.confined && arguments_.session.symlinks.empty()) session_options.contained_symlinks = true;
  mountpoint_ = std::make_unique<RunMountpoint>(arguments_.confined ? "" : arguments_.mountpoint,
                                                context_->repository().git_directory(), session_options.uid);
  std::unique_ptr<session::Session> session =
      context_->sessions().open(session_options, arguments_.session.branch.empty());
  id_ = session->id();
  ballast_.emplace(session->directory());
  SessionHost::Options host_options;
  host_options.mount.mountpoint = mountpoint_->path();
  host_options.mount.xattrs = arguments_.session.xattr == "user";
  host_options.mount.io_uring = arguments_.session.io_uring != "off";
  IoChoice io = choose_io(arguments_.session, !session_options.policies.empty());
  host_options.mount.io = io.mode;
  host_options.io_reason = std::move(io.reason);
  host_options.visible_root = visible_mountpoint();
  host_options.trace = std::move(trace);
  host_options.mount.allow_other = ::geteuid() == 0;
  host_options.mount.read_only = session_options.read_only;
  // The runner hears it as it hears every signal that cancels.
  host_options.cancel_run = [] { ::kill(::getpid(), SIGTERM); };
  host_ = std::make_unique<SessionHost>(std::move(session), host_options, context_->repository(), context_->log());
}

CommandSpec Run::command_spec() const {
  CommandSpec spec;
  spec.arguments = arguments_.command;
  spec.environment = command_environment(arguments_, id_->text(), visible_mountpoint(),
                                         context_->repository().git_directory());
  spec.working_directory = mountpoint_->path();
  spec.identity = command_identity(arguments_.session);
  spec.umask = umask_;
  spec.timeout = timeout_;
  spec.grace = grace_;
  spec.mountpoint = mountpoint_->path();
  spec.remove_mountpoint = mountpoint_->is_fresh();
  if (arguments_.confined) {
    confine(spec, {.mountpoint = visible_mountpoint(), .network = arguments_.network == "host"});
  } else if (arguments_.network == "none") {
    cut_network(spec);
  }
  return spec;
}

// As the command sees it.
std::string Run::visible_mountpoint() const {
  if (!arguments_.confined) return mountpoint_->path();
  return arguments_.mountpoint.empty() ? kSandboxMountpoint : arguments_.mountpoint;
}

CommandEnd Run::run_command() {
  CommandEnd end = runner_->run(command_spec());
  std::string pids;
  for (const pid_t pid : end.survivors) pids += (pids.empty() ? "" : ", ") + std::to_string(pid);
  if (!pids.empty()) say("processes of the command could not be ended: " + pids + "; they can write no more");
  return end;
}

void Run::end_session(const CommandEnd& end) {
  result_.command_status = end.command_status;
  const std::string warning = host_->seal_and_unmount();
  if (!warning.empty()) say("warning: " + warning);
  if (const auto reason = rollback_reason(end)) {
    roll_back(*reason, end.command_status);
  } else {
    commit();
  }
  result_.omitted = host_->session().omitted();
  result_.record = host_->session().record();
}

void Run::commit() {
  const session::CommitRequest request{.message = arguments_.message, .exit_code = 0,
                                       .reason = session::Reason::success, .by_hand = false,
                                       .who = current_principal()};
  const session::CommitOutcome outcome = host_->finish_commit(request);
  if (const auto* committed = std::get_if<session::Committed>(&outcome)) result_.counts = committed->counts;
  if (const auto* sealed = std::get_if<session::AwaitingApproval>(&outcome)) result_.counts = sealed->counts;
  if (const auto* conflicts = std::get_if<session::Conflicts>(&outcome)) result_.conflicts = conflicts->paths;
}

void Run::roll_back(session::Reason reason, std::optional<int> status) {
  host_->finish_rollback(reason, status, current_principal(), arguments_.keep_on_failure);
}

// Escrow itself failed on the way. What was to be rolled back is; a commit that failed for an outside reason has left
// the session open, to be tried again by hand.
void Run::abandon(const CommandEnd& end) {
  if (ballast_) ballast_->release();
  host_.reset();
  try {
    result_.record = context_->sessions().status(*id_).record;
    if (result_.record->state != session::State::open || !result_.record->last_error.empty()) return;
    if (!rollback_reason(end)) return keep_open();
    const std::unique_ptr<session::Session> session = context_->sessions().attach(*id_);
    session->rollback(rollback_reason(end).value_or(session::Reason::not_started), end.command_status,
                      current_principal(), arguments_.keep_on_failure);
    result_.record = session->record();
  } catch (const Error& error) {
    if (result_.error != error.what()) result_.error += std::string("; ") + error.what();
  }
}

// The commit failed and had no room to say so: without this, recovery would take the session for an orphan's.
void Run::keep_open() {
  session::SessionRecord record = *result_.record;
  record.last_error = result_.error;
  context_->repository().catalog().transition(session::State::open, record, current_principal(),
                                              "the commit failed: the session stays open");
  result_.record = record;
}

int Run::report(const CommandEnd& end) {
  result_.exit_code = exit_code_of_run(*result_.record, end);
  result_.summary = summary_of({result_, end, timeout_});
  if (const std::string omitted = omissions_sentence(result_.omitted); !omitted.empty()) say(omitted);
  if (!arguments_.result.empty()) {
    try {
      write_result(arguments_.result, result_);
    } catch (const Error& error) {
      say(error.what());
      if (result_.exit_code == kExitSuccess) result_.exit_code = kExitEscrowFailed;
    }
  }
  say(result_.summary);
  return result_.exit_code;
}

// No session came to be.
int Run::report_failure(const Error& error) {
  if (!arguments_.result.empty()) {
    result_.exit_code = kExitEscrowFailed;
    result_.error = error.what();
    result_.summary = error.what();
    try {
      write_result(arguments_.result, result_);
    } catch (const Error& second) {
      say(second.what());
    }
  }
  throw error;
}

int Run::execute() {
  if (!arguments_.result.empty()) check_result_path(arguments_.result);
  CommandEnd end;
  try {
    check_arguments();
    prepare_process();
    open_session();
    end = run_command();
    end_session(end);
  } catch (const Error& error) {
    if (!id_) return report_failure(error);
    result_.error = error.what();
    abandon(end);
    if (!result_.record) return report_failure(error);
  }
  // Everything is gone before the last sentence is said.
  host_.reset();
  mountpoint_.reset();
  const int status = report(end);
  context_->tidy();
  return status;
}

}  // namespace

void register_run(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* command = app.add_subcommand("run", "Run a command over a session; commit or roll back by its exit status");
  add_audit_options(*command, arguments->session);
  add_view_options(*command, arguments->session);
  command
      ->add_option("--mountpoint", arguments->mountpoint,
                   "An empty directory to mount on (default: a fresh one); with --confine, where the command sees the "
                   "mount (default: /sandbox)")
      ->type_name("D");
  command->add_flag("--confine", arguments->confined,
                    "Leave the command only the mount and what a program needs to start; listed below");
  command
      ->add_option("--network", arguments->network,
                   "none: only a loopback of its own (default with --confine); host: the machine's (default without)")
      ->check(CLI::IsMember({"none", "host"}));
  command->add_option("--timeout", arguments->timeout, "End the command and roll back after this time: 90s, 1h30m")
      ->type_name("TIME");
  command->add_option("--grace", arguments->grace, "Time between the first signal and SIGKILL (default: 10s)")
      ->type_name("TIME");
  command->add_option("--env", arguments->environment, "Set a variable for the command (may be repeated)")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command->add_flag("--keep-on-failure", arguments->keep_on_failure,
                    "Keep what a failed command wrote as refs/sessions/<id>");
  command->add_option("--result", arguments->result, "Write what became of the session to FILE, as JSON")
      ->type_name("FILE");
  command->add_option("-m,--message", arguments->message, "The commit message")->type_name("MESSAGE");
  command->add_option("command", arguments->command, "The command and its arguments, after --")
      ->required()
      ->type_name("CMD...");
  command->positionals_at_end();
  command->footer(std::string(kHelp) + "\n" + kConfinementHelp);
  command->callback([&options, &chosen, command, arguments] {
    arguments->command = words_as_given(options.arguments, arguments->command);
    arguments->has_umask = command->get_option("--umask")->count() > 0;
    chosen = [&options, arguments] { return Run(options, *arguments).execute(); };
  });
}

}  // namespace escrow::daemon
