// `escrow run`: one command over one session, and what becomes of the session by the way the command ends.
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>

#include "daemon/cli/commands/commands.h"
#include "daemon/cli/request_arguments.h"
#include "daemon/cli/retry.h"
#include "daemon/client/remote_opening.h"
#include "daemon/client/remote_run.h"
#include "daemon/client/remote_sessions.h"
#include "daemon/host/config.h"
#include "daemon/host/denial_trace.h"
#include "daemon/host/local_author.h"
#include "daemon/host/run_result.h"
#include "daemon/host/session_run.h"
#include "daemon/process/confinement.h"
#include "daemon/process/container.h"
#include "daemon/process/exit_status.h"
#include "session/base/duration.h"
#include "session/base/error.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;
using session::parse_duration;

constexpr const char* kHelp =
    "The mount is the command's working directory; ESCROW_SESSION and ESCROW_MOUNT are set in its environment.\n"
    "Exit status 0 of the command commits what it wrote as one commit; everything else rolls it back.\n"
    "What was written is what is committed, but for --exclude and what git would not add (.gitignore).\n"
    "SIGINT and SIGTERM to `escrow run` go to the command's process group, after --grace SIGKILL follows, and the\n"
    "session is rolled back. On a terminal the command is in the foreground, and Ctrl-C is the command's own.\n"
    "With --image the command runs in a container of that image, or the image's own command does; what the container\n"
    "exits with decides, and one that was stopped is rolled back whatever it made of the signal.\n"
    "With --host the command runs where that escrowd is, with an empty standard input, as this user or whom\n"
    "--committer names there (root: or --uid); Ctrl-C cancels it. Policies, the trace and the result are files here.\n"
    "\n"
    "Exit status: 0 committed or nothing changed; the command's own (128+n for signal n) when that rolled it back;\n"
    "122 conflict; 123 the result awaits approval; 124 timeout; 125 Escrow failed; 126 the command could not be run;\n"
    "127 it was not found.\n";

constexpr std::uint64_t kMostRetries = 1000;

struct RunArguments {
  RequestArguments given;
  SessionRequest session;  // of what is given, when the command runs
  std::string trace, mountpoint, timeout, grace, result, message;
  std::vector<std::string> environment, python_path;
  bool keep_on_failure = false, with_changes = false;
  std::uint64_t retries = 0;
  std::string retry_backoff;
  std::optional<std::uint64_t> max_processes, memory_bytes;
  std::optional<double> cpus;
  bool confined = false;
  std::string network;  // "none", "host"; empty: host, but none for a confined command, and the runtime's default
  ContainerOptions container;
  std::vector<std::string> command;
  std::vector<std::string> of_this_machine;  // the given options for which a service has no word
};

void say(const std::string& sentence) {
  const std::string line = "escrow: " + sentence + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::uint64_t milliseconds(const std::string& text, const std::string& option) {
  return static_cast<std::uint64_t>(parse_duration(text, option).count());
}

std::optional<std::uint64_t> millicpus(const std::optional<double>& cpus) {
  if (!cpus) return std::nullopt;
  return static_cast<std::uint64_t>(std::llround(*cpus * 1000));
}

mode_t current_umask() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return mask;
}

// One run from its options to its exit status.
class Run {
 public:
  Run(const GlobalOptions& options, const RunArguments& arguments) : options_(options), arguments_(arguments) {}

  int execute();

 private:
  void read_request();
  SessionRun::Settings settings() const;
  int try_once(std::uint64_t left, bool& again);
  api::JsonObject order(const std::string& repository) const;
  int execute_there();
  int report(api::RunResult& result) const;
  [[noreturn]] void report_failure(api::RunResult result, const Error& error) const;

  const GlobalOptions& options_;
  RunArguments arguments_;
};

void Run::read_request() {
  arguments_.session = arguments_.given.request();
  arguments_.session.message = arguments_.message;
  arguments_.session.keep_on_failure = arguments_.keep_on_failure;
}

SessionRun::Settings Run::settings() const {
  const SessionRequest& session = arguments_.session;
  SessionRun::Settings settings;
  settings.repository = options_;
  settings.session_options = [this, &session](const session::ReferenceStore& references) {
    session::SessionOptions options = session_options(session, references, "sandbox");
    set_local_author(options, session, repository_path(options_));
    return options;
  };
  settings.create_branch = session.branch.empty();
  settings.with_changes = arguments_.with_changes;
  settings.view = session;
  settings.trace = arguments_.trace;
  settings.mountpoint = arguments_.mountpoint;
  settings.command = arguments_.command;
  settings.environment = arguments_.environment;
  settings.python_path = parse_python_path(arguments_.python_path, "--python-path");
  settings.identity = identity_of(session.uid.value_or(::getuid()), session.gid.value_or(::getgid()));
  settings.umask = arguments_.given.has("umask") ? parse_umask(session.umask, "--umask") : current_umask();
  if (!arguments_.timeout.empty()) settings.timeout = parse_duration(arguments_.timeout, "--timeout");
  if (!arguments_.grace.empty()) settings.grace = parse_duration(arguments_.grace, "--grace");
  if (arguments_.max_processes) {
    settings.limits.processes = *arguments_.max_processes;
    settings.limits.needs_processes = true;
  }
  settings.limits.memory_bytes = arguments_.memory_bytes;
  settings.limits.millicpus = millicpus(arguments_.cpus);
  settings.message = session.message;
  settings.who = current_principal();
  settings.keep_on_failure = session.keep_on_failure;
  settings.git_by_default = true;
  settings.confined = arguments_.confined;
  settings.network = arguments_.network.empty() ? !arguments_.confined : arguments_.network == "host";
  if (!session.image.empty()) {
    settings.container = arguments_.container;
    settings.container->image = session.image;
    settings.container->network = arguments_.network;
    settings.container->uid = session.uid;
    settings.container->gid = session.gid;
  }
  settings.say = say;
  return settings;
}

// The body of POST /v1/runs.
api::JsonObject Run::order(const std::string& repository) const {
  api::JsonObject body = remote_opening(repository, arguments_.session);
  write_session_request(body, arguments_.session, {RequestPart::mount});
  body.texts("command", arguments_.command);
  api::JsonObject variables;
  for (const std::string& variable : arguments_.environment) {
    const std::size_t equals = variable.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error(Errc::bad_request, "--env '" + variable + "' is not NAME=VALUE");
    variables.text(variable.substr(0, equals), variable.substr(equals + 1));
  }
  body.object("env", std::move(variables));
  if (!arguments_.python_path.empty()) body.texts("python_path", arguments_.python_path);
  if (!arguments_.mountpoint.empty()) body.text("mountpoint", arguments_.mountpoint);
  if (!arguments_.timeout.empty()) body.number("timeout_ms", milliseconds(arguments_.timeout, "--timeout"));
  if (!arguments_.grace.empty()) body.number("grace_ms", milliseconds(arguments_.grace, "--grace"));
  if (arguments_.memory_bytes) body.number("memory_bytes", *arguments_.memory_bytes);
  if (const auto limit = millicpus(arguments_.cpus)) body.number("millicpus", *limit);
  if (arguments_.max_processes) body.number("max_processes", *arguments_.max_processes);
  body.flag("confined", arguments_.confined);
  const bool has_network = arguments_.network.empty() ? !arguments_.confined : arguments_.network == "host";
  body.text("network", has_network ? "host" : "none");
  return body;
}

int Run::execute_there() {
  refuse_options_of_this_machine(arguments_.of_this_machine);
  if (arguments_.command.empty())
    throw Error(Errc::bad_request, "there is no command to run; give one after --");
  if (!arguments_.result.empty()) check_result_path(arguments_.result);
  std::optional<std::chrono::milliseconds> timeout;
  if (!arguments_.timeout.empty()) timeout = parse_duration(arguments_.timeout, "--timeout");
  RemoteRunEnd end;
  try {
    ServiceClient client(service_host(options_), options_);
    read_request();
    const api::JsonObject ordered = order(client.repository());
    std::optional<DenialTrace> trace;
    if (!arguments_.trace.empty()) trace.emplace(arguments_.trace);
    end = run_remotely(client, ordered, {.program = arguments_.command.front(),
                                         .timeout = timeout,
                                         .trace = trace ? &*trace : nullptr});
  } catch (const Error& error) {
    report_failure({}, error);
  }
  for (const std::string& warning : end.warnings) say(warning);
  return report(end.result);
}

int Run::report(api::RunResult& result) const {
  if (const std::string omitted = omissions_sentence(result.omitted, options_.verbose); !omitted.empty()) {
    say(omitted);
  }
  if (const std::string outside = outside_sentence(result.mounts); !outside.empty()) say(outside);
  if (!arguments_.result.empty()) {
    try {
      write_result(arguments_.result, result);
    } catch (const Error& error) {
      say(error.what());
      if (result.exit_code == kExitSuccess) result.exit_code = kExitEscrowFailed;
    }
  }
  say(result.summary);
  return result.exit_code;
}

// No session came to be.
void Run::report_failure(api::RunResult result, const Error& error) const {
  if (!arguments_.result.empty()) {
    result.exit_code = kExitEscrowFailed;
    result.error = error.what();
    result.summary = error.what();
    try {
      write_result(arguments_.result, result);
    } catch (const Error& second) {
      say(second.what());
    }
  }
  throw error;
}

int Run::execute() {
  if (!service_host(options_).empty()) return execute_there();
  if (!arguments_.result.empty()) check_result_path(arguments_.result);
  Retries retries{.count = arguments_.retries};
  if (!arguments_.retry_backoff.empty()) {
    retries.backoff = std::chrono::duration_cast<std::chrono::milliseconds>(
        parse_duration(arguments_.retry_backoff, "--retry-backoff"));
  }
  return run_with_retries(retries, [this](std::uint64_t left, bool& again) { return try_once(left, again); });
}

int Run::try_once(std::uint64_t left, bool& again) {
  std::optional<SessionRun> run;
  try {
    read_request();
    SessionRun::Settings settled = settings();
    settled.is_tried_again = left > 0;
    run.emplace(std::move(settled));
    run->execute();
  } catch (const Error& error) {
    report_failure(run ? run->result() : api::RunResult(), error);
  }
  api::RunResult& result = run->result();
  result.exit_code = exit_code_of_run(*result.record, run->end());
  again = left > 0 && result.record->reason == session::Reason::conflict;
  result.summary = summary_of({result, run->end(), run->settings().timeout});
  if (again) result.summary += "; the command is run again, and may be " + std::to_string(left - 1) + " times more";
  const int status = report(result);
  run->tidy();
  return status;
}

}  // namespace

void register_run(CLI::App& app, const GlobalOptions& options, Action& chosen) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* command = app.add_subcommand("run", "Run a command over a session; commit or roll back by its exit status");
  arguments->given.add_to(*command, {RequestPart::commit, RequestPart::asker, RequestPart::view, RequestPart::mount});
  // Else a script whose variable is empty would run its command here, outside of any container.
  CLI::Option* image = command->get_option("--image");
  image->description("Run the command in a container of this image; recorded by its digest")
      ->check([](const std::string& name) { return name.empty() ? "it is empty; name the image" : ""; });
  add_trace_option(*command, arguments->trace);
  command
      ->add_option("--mountpoint", arguments->mountpoint,
                   "An empty directory to mount on (default: a fresh one); with --confine and --image, where the "
                   "command sees the mount (default: /sandbox)")
      ->type_name("D");
  command->add_option("--runtime", arguments->container.runtime, "What starts the container of --image")
      ->needs(image)
      ->check(CLI::IsMember({"docker", "podman", "auto"}))
      ->capture_default_str();
  command->add_option("--pull", arguments->container.pull, "Whether an image that is missing is pulled")
      ->needs(image)
      ->check(CLI::IsMember({"never", "missing"}))
      ->capture_default_str();
  command
      ->add_option("--runtime-arg", arguments->container.runtime_arguments,
                   "Goes to `docker run` or `podman run` as it is (may be repeated): --runtime-arg=--memory=1g")
      ->type_name("ARG")
      ->needs(image)
      ->allow_extra_args(false);
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
  command
      ->add_option("--max-processes", arguments->max_processes,
                   "Processes of the command at once, threads included (default: 4096)")
      ->check(CLI::Range(std::uint64_t{1}, kMostProcesses))
      ->type_name("N");
  command
      ->add_option("--memory", arguments->memory_bytes,
                   "Memory of the command and all it starts, swap included: 512m, 2g; when it is used up, the kernel "
                   "kills, and the session is rolled back")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(kLeastMemory_bytes, kMostMemory_bytes))
      ->type_name("SIZE");
  command->add_option("--cpus", arguments->cpus, "Processors that the command may keep busy: 0.5, 2")
      ->check(CLI::Range(kLeastMillicpus / 1000.0, kMostMillicpus / 1000.0))
      ->type_name("N");
  command->add_option("--env", arguments->environment, "Set a variable for the command (may be repeated)")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--python-path", arguments->python_path,
                   "Look for Python modules in this directory of the mount first (may be repeated: in this order)")
      ->type_name("P")
      ->allow_extra_args(false);
  command->add_flag("--keep-on-failure", arguments->keep_on_failure,
                    "Keep what a failed command wrote as refs/sessions/<id>");
  command
      ->add_option("--retry", arguments->retries,
                   "On a conflict run the command again, over the new head, up to N times; standard input "
                   "should be a file")
      ->check(CLI::Range(std::uint64_t{0}, kMostRetries))
      ->type_name("N");
  command
      ->add_option("--retry-backoff", arguments->retry_backoff,
                   "Wait before the first retry, twice as long before each other, up to 5m (default: do not wait)")
      ->type_name("TIME");
  arguments->given.add_git_to(*command);
  add_with_changes_option(*command, arguments->with_changes);
  command->add_option("--result", arguments->result, "Write what became of the session to FILE, as JSON")
      ->type_name("FILE");
  command->add_option("-m,--message", arguments->message, "The commit message")->type_name("MESSAGE");
  command->add_option("command", arguments->command, "The command and its arguments, after --")->type_name("CMD...");
  command->positionals_at_end();
  command->footer(std::string(kHelp) + "\n" + kConfinementHelp);
  command->callback([&options, &chosen, command, arguments] {
    arguments->command = words_as_given(options.arguments, arguments->command);
    arguments->of_this_machine =
        given_options(*command, {"--issuer", "--with-changes", "--mount", "--inject", "--cache", "--retry",
                                 "--retry-backoff", "--image", "--runtime", "--pull", "--runtime-arg"});
    chosen = [&options, arguments] { return Run(options, *arguments).execute(); };
  });
}

}  // namespace escrow::daemon
