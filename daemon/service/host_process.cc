#include "daemon/service/host_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>

#include "api/json_document.h"
#include "api/protocol.h"
#include "api/request_fields.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;

namespace {

constexpr int kChannelDescriptor = 3;
constexpr std::chrono::milliseconds kStartPatience{60'000};  // for a repository and a mount to be there

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
  throw Error(Errc::unavailable, "no host process could be started: " + why);
}

// From /proc/self/exe: both ends speak the same version, also when another one was installed meanwhile.
pid_t spawn(const MessageChannel& channel, std::string argument) {
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
  std::string name = "escrowd";
  std::array<char*, 3> arguments = {name.data(), argument.data(), nullptr};
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, "/proc/self/exe", &settings.actions, &settings.attributes, arguments.data(),
                                  environ);
  if (error != 0) cannot_start(std::strerror(error));
  return pid;
}

}  // namespace

HostProcess HostProcess::start(const char* argument) {
  std::optional<std::pair<MessageChannel, MessageChannel>> ends = MessageChannel::pair();
  if (!ends) cannot_start(std::strerror(errno));
  const pid_t pid = spawn(ends->second, argument);
  return {.pid = pid, .channel = std::move(ends->first)};
}

MessageChannel begin_host_process() {
  ::prctl(PR_SET_NAME, "escrow-host", 0, 0, 0);
  ::fcntl(kChannelDescriptor, F_SETFD, FD_CLOEXEC);
  return MessageChannel{FileDescriptor(kChannelDescriptor)};
}

Message expect_message(MessageChannel& channel, MessageKind kind) {
  std::optional<Message> message = channel.receive_within(kStartPatience);
  if (!message) cannot_start("it has died or does not answer");
  if (message->kind == MessageKind::refused) throw decode_refusal(message->body);
  if (message->kind != kind) cannot_start("it does not do what it should");
  return *std::move(message);
}

std::string encode_refusal(const session::Error& error) {
  return api::JsonObject().text("code", api::name_of(error.code())).text("message", error.what()).text();
}

session::Error decode_refusal(std::string_view bytes) {
  api::RequestFields fields(bytes, "the refusal");
  const auto code = api::errc_from_name(fields.required_text("code"));
  return {code.value_or(session::Errc::input_output), fields.text("message").value_or("")};
}

}  // namespace escrow::daemon
