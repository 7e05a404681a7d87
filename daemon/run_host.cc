#include "daemon/run_host.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "daemon/cancel_mark.h"
#include "daemon/exit_status.h"
#include "daemon/io_choice.h"
#include "daemon/message_channel.h"
#include "daemon/mount_service.h"
#include "daemon/mountpoint.h"
#include "daemon/output_capture.h"
#include "daemon/repository_context.h"
#include "daemon/run_conclusion.h"
#include "daemon/session_host.h"
#include "daemon/session_run.h"
#include "daemon/session_terms.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
using std::chrono::milliseconds;

namespace {

constexpr int kChannelDescriptor = 3;
constexpr milliseconds kStartPatience{60'000};  // for a repository and a mount to be there
constexpr rlim_t kDescriptors = 1024;           // what programs are used to; escrowd itself takes all it can get

// ---- The host process.

CommandSpec::Output output_of(const RunOrder& order) {
  return {.directory = order.directory, .most_bytes = order.output_bytes};
}

SessionRun::Settings settings_of(const RunOrder& order) {
  SessionRun::Settings settings;
  settings.repository.repository = order.repository;
  settings.repository.verbose = order.verbose;
  settings.session_options = [session = order.session](const session::ReferenceStore&) { return session; };
  settings.create_branch = order.create_branch;
  settings.id = order.id;
  settings.view = mounting_of(order.mount_options).opened;
  settings.view.symlinks = order.session.contained_symlinks ? "contained" : "any";
  settings.view.trace = order.directory + "/" + kTraceName;
  settings.keep_on_failure = order.session.keep_on_failure;
  settings.mountpoint = order.mountpoint;
  settings.command = order.session.command;
  settings.environment = order.environment;
  settings.inherits_environment = false;
  settings.identity = identity_of(order.session.uid, order.session.gid);
  settings.umask = order.session.umask;
  if (order.timeout_ms) settings.timeout = milliseconds(*order.timeout_ms);
  settings.grace = milliseconds(order.grace_ms);
  settings.memory_bytes = order.memory_bytes;
  settings.output = output_of(order);
  settings.message = order.message;
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

void restore_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min(kDescriptors, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
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
    session::SessionOptions options = order.session;
    options.ephemeral = true;
    options.keep_on_failure = true;
    SessionHost::Options hosted;
    hosted.mount.mountpoint = check_mountpoint(order.host_mountpoint, context->repository().git_directory());
    hosted.mount.allow_other = ::geteuid() == 0;
    hosted.mount.read_only = options.read_only;
    hosted.mount.extra_options = {"nosuid", "nodev"};
    IoChoice io = choose_io({}, !options.policies.empty());
    hosted.mount.io = io.mode;
    hosted.io_reason = std::move(io.reason);
    host = std::make_unique<SessionHost>(context->sessions().open(options, order.create_branch, order.id), hosted,
                                         context->repository(), context->log());
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

// ---- Escrowd's side.

struct SpawnSettings {
  SpawnSettings() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

[[noreturn]] void cannot_start(const std::string& why) {
  throw Error(Errc::unavailable, "the run could not be started: " + why);
}

// This very program, whatever has been installed in its place meanwhile, in a session of its own, with nothing of ours
// but standard error and the channel.
pid_t spawn_host(const MessageChannel& channel) {
  SpawnSettings settings;
  ::posix_spawn_file_actions_addopen(&settings.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&settings.actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&settings.actions, channel.descriptor(), kChannelDescriptor);
  ::posix_spawn_file_actions_addclosefrom_np(&settings.actions, kChannelDescriptor + 1);
  sigset_t none, defaults;
  ::sigemptyset(&none);
  ::sigemptyset(&defaults);
  for (const int number : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD}) ::sigaddset(&defaults, number);
  ::posix_spawnattr_setsigmask(&settings.attributes, &none);
  ::posix_spawnattr_setsigdefault(&settings.attributes, &defaults);
  ::posix_spawnattr_setflags(&settings.attributes, static_cast<short>(POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
                                                                      POSIX_SPAWN_SETSIGDEF));
  std::string name = "escrowd", argument = kRunHostArgument;
  std::array<char*, 3> arguments = {name.data(), argument.data(), nullptr};
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, "/proc/self/exe", &settings.actions, &settings.attributes, arguments.data(),
                                  environ);
  if (error != 0) cannot_start(std::string("no process could be made for it: ") + std::strerror(error));
  return pid;
}

// The next message; a refusal is thrown.
Message expect_message(MessageChannel& channel, MessageKind kind) {
  std::optional<Message> message = channel.receive_within(kStartPatience);
  if (!message) cannot_start("its host process has died or does not answer");
  if (message->kind == MessageKind::refused) throw decode_refusal(message->body);
  if (message->kind != kind) cannot_start("its host process does not do what it should");
  return *std::move(message);
}

}  // namespace

int run_host() {
  ::prctl(PR_SET_NAME, "escrow-host", 0, 0, 0);
  ::fcntl(kChannelDescriptor, F_SETFD, FD_CLOEXEC);
  restore_descriptor_limit();
  MessageChannel channel{FileDescriptor(kChannelDescriptor)};
  const std::optional<Message> order = channel.receive();
  if (!order || order->kind != MessageKind::order) return kExitUsage;
  const RunOrder decoded = decode_run_order(order->body);
  return decoded.host_mountpoint.empty() ? host(channel, decoded) : host_mount(channel, decoded);
}

void RunHosts::start(const RunOrder& order) {
  reap();
  std::optional<std::pair<MessageChannel, MessageChannel>> ends = MessageChannel::pair();
  if (!ends) cannot_start(std::strerror(errno));
  const pid_t pid = spawn_host(ends->second);
  children_.lock()->insert(pid);
  ends->second.close();
  MessageChannel& channel = ends->first;
  try {
    channel.send(MessageKind::order, encode(order));
    expect_message(channel, MessageKind::ready);
    channel.send(MessageKind::go, "");
    expect_message(channel, MessageKind::running);
  } catch (const Error&) {
    // Ours until it is reaped, so the number is nobody else's; its supervisor clears up after it.
    auto children = children_.lock();
    if (children->contains(pid)) ::kill(pid, SIGKILL);
    throw;
  }
}

void RunHosts::reap() noexcept {
  auto children = children_.lock();
  std::erase_if(*children, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
}

}  // namespace escrow::daemon
