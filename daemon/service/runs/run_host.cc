#include "daemon/service/runs/run_host.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "daemon/host/kept_mounts.h"
#include "daemon/host/cancel_mark.h"
#include "daemon/host/io_choice.h"
#include "daemon/host/mount_service.h"
#include "daemon/host/mountpoint.h"
#include "daemon/host/repository_context.h"
#include "daemon/host/run_conclusion.h"
#include "daemon/host/session_git.h"
#include "daemon/host/session_host.h"
#include "daemon/host/session_run.h"
#include "daemon/process/descriptor_limit.h"
#include "daemon/process/exit_status.h"
#include "daemon/process/message_channel.h"
#include "daemon/process/output_capture.h"
#include "daemon/service/host_process.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
using std::chrono::milliseconds;

namespace {

constexpr rlim_t kDescriptors = 1024;           // what programs are used to; servers take all they can get

// ---- The host process.

CommandSpec::Output output_of(const RunOrder& order) {
  return {.directory = order.directory, .most_bytes = order.output_bytes};
}

session::SessionOptions options_of(const RunOrder& order, const session::ReferenceStore& references) {
  session::SessionOptions options = session_options(order.session, references, "sandbox");
  options.command = order.command;
  return options;
}

// The settings refer to the order.
SessionRun::Settings settings_of(const RunOrder& order) {
  SessionRun::Settings settings;
  settings.repository.repository = order.repository;
  settings.repository.verbose = order.verbose;
  settings.session_options = [&order](const session::ReferenceStore& references) {
    return options_of(order, references);
  };
  settings.create_branch = order.session.branch.empty();
  settings.id = order.id;
  settings.view = order.session;
  settings.trace = order.directory + "/" + kTraceName;
  settings.keep_on_failure = order.session.keep_on_failure;
  settings.mountpoint = order.mountpoint;
  settings.command = order.command;
  settings.environment = order.environment;
  settings.python_path = order.python_path;
  settings.inherits_environment = false;
  settings.identity = identity_of(order.session.uid.value(), order.session.gid.value());
  if (settings.identity && order.groups) settings.identity->groups.assign(order.groups->begin(), order.groups->end());
  settings.umask = parse_umask(order.session.umask, "the umask");
  if (order.timeout_ms) settings.timeout = milliseconds(*order.timeout_ms);
  settings.grace = milliseconds(order.grace_ms);
  settings.limits = order.limits;
  settings.output = output_of(order);
  settings.message = order.session.message;
  settings.who = order.who;
  settings.confined = order.confined;
  settings.network = order.network;
  settings.concluded = [output = output_of(order)](const api::RunResult& result) {
    write_conclusion(output.directory, result.omitted, output.most_bytes);
  };
  settings.was_cancelled = [directory = order.directory] { return is_marked_cancelled(directory); };
  settings.say = [id = order.id.text()](const std::string& sentence) {
    const std::string line = "escrowd: run " + id + ": " + sentence + "\n";
    std::fwrite(line.data(), 1, line.size(), stderr);
  };
  return settings;
}

// Whether a command that ended like this was there at all: one that is not found is a run that has ended.
bool was_tried(const SessionRun& run) { return run.end().cause != EndCause::failed; }

int host(MessageChannel& channel, const RunOrder& order) {
  const FileDescriptor promise = promise_conclusion(order.directory);
  bool is_told = false;
  std::optional<CancelWatch> watch;
  SessionRun::Settings settings = settings_of(order);
  const auto say = settings.say;
  settings.before_start = [&] {
    channel.send(MessageKind::ready, "");
    const std::optional<Message> answer = channel.receive();
    if (!answer || answer->kind != MessageKind::go) {
      throw Error(Errc::unavailable, "the service that asked for the run is gone");
    }
    // The runner hears it as it hears every signal that cancels.
    watch.emplace(order.directory, [] { ::kill(::getpid(), SIGTERM); });
  };
  const auto tell = [&] {
    if (!is_told) channel.send(MessageKind::running, "");
    is_told = true;
  };
  settings.started = tell;
  SessionRun run(std::move(settings));
  try {
    run.execute();
    const std::string error = run.result().error.empty() ? run.end().message : run.result().error;
    if (!is_told && !was_tried(run)) throw Error(Errc::unavailable, error);
    tell();
    if (!run.result().error.empty()) say(run.result().error);
  } catch (const Error& error) {
    channel.send(MessageKind::refused, encode_refusal(error));
    return kExitEscrowFailed;
  }
  watch.reset();
  run.tidy();
  return kExitSuccess;
}

// A session without a command, mounted until somebody ends it over its control socket. It belongs to this process as a
// run's does to its own.
int host_mount(MessageChannel& channel, const RunOrder& order) {
  const FileDescriptor signals = take_leave_signals();
  std::unique_ptr<RepositoryContext> context;
  std::unique_ptr<SessionHost> host;
  try {
    GlobalOptions repository;
    repository.repository = order.repository;
    repository.verbose = order.verbose;
    context = std::make_unique<RepositoryContext>(repository);
    session::SessionOptions options = options_of(order, context->repository().references());
    options.ephemeral = true;
    options.keep_on_failure = true;
    SessionHost::Options hosted;
    hosted.mount.mountpoint = check_mountpoint(order.host_mountpoint, context->repository().git_directory());
    hosted.mount.allow_other = ::geteuid() == 0;
    hosted.mount.read_only = options.read_only;
    hosted.mount.extra_options = {"nosuid", "nodev"};
    hosted.mount.xattrs = order.session.xattr == "user";
    hosted.mount.io_uring = order.session.io_uring != "off";
    hosted.git = git_terms(order.session.git, false, options, context->repository(), order.repository);
    if (hosted.git) hosted.git->objects.clear();
    hosted.git_viewer = {.hand = hand_of_command(order.session.trigger), .shows_entries = true};
    IoChoice io = choose_io(order.session, needs_of_policies(options.policies, options.prefix.text()), options.limits,
                            with_objects(order.session.mounts.specs, hosted.git, context->repository()));
    hosted.mount.io = io.mode;
    hosted.io_reason = std::move(io.reason);
    std::unique_ptr<session::Session> session =
        context->sessions().open(options, order.session.branch.empty(), order.id,
                                 preparation_of(order.session, hosted.git, options, context->repository()));
    host = std::make_unique<SessionHost>(std::move(session), hosted, context->repository(), context->log());
  } catch (const Error& error) {
    channel.send(MessageKind::refused, encode_refusal(error));
    return kExitEscrowFailed;
  }
  channel.send(MessageKind::ready, "");
  const std::optional<Message> answer = channel.receive();
  if (!answer || answer->kind != MessageKind::go) {
    // Nobody was told of it.
    host->seal_and_unmount();
    host->finish_rollback(session::Reason::not_started, std::nullopt, "escrowd", false);
    return kExitEscrowFailed;
  }
  channel.send(MessageKind::running, "");
  channel.close();
  serve_mount(*host, signals);
  if (!host->has_ended()) host->leave();
  host.reset();
  context->tidy();
  return kExitSuccess;
}

}  // namespace

int run_host() {
  allow_descriptors(kDescriptors);
  MessageChannel channel = begin_host_process();
  const std::optional<Message> order = channel.receive();
  if (!order || order->kind != MessageKind::order) return kExitUsage;
  const RunOrder decoded = decode_run_order(order->body);
  return decoded.host_mountpoint.empty() ? host(channel, decoded) : host_mount(channel, decoded);
}

void RunHosts::start(const RunOrder& order) {
  reap();
  HostProcess host = HostProcess::start(kRunHostArgument);
  children_.lock()->insert(host.pid);
  try {
    host.channel.send(MessageKind::order, encode(order));
    expect_message(host.channel, MessageKind::ready);
    host.channel.send(MessageKind::go, "");
    expect_message(host.channel, MessageKind::running);
  } catch (const Error&) {
    // Ours until it is reaped, so the number is nobody else's; its supervisor clears up after it.
    auto children = children_.lock();
    if (children->contains(host.pid)) ::kill(host.pid, SIGKILL);
    throw;
  }
}

void RunHosts::reap() noexcept {
  auto children = children_.lock();
  std::erase_if(*children, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
}

}  // namespace escrow::daemon
