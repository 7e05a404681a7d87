#include "daemon/container.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "session/error.h"
#include "session/repo_path.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;

constexpr int kNoSuchCommand = 127;

ContainerRuntime::Pull pull_of(const ContainerOptions& options) {
  return options.pull == "never" ? ContainerRuntime::Pull::never : ContainerRuntime::Pull::missing;
}

// The runtimes take mounts as comma-separated fields.
void check_mountpoint(const std::string& path) {
  if (path.starts_with('/') && path.size() > 1 && !path.ends_with('/') && path.find(',') == std::string::npos) return;
  throw Error(Errc::bad_request, "--mountpoint " + session::quote_path(path) +
                                     " cannot be used with --image: it is the path in the container, absolute, not /, "
                                     "without a comma or a slash at its end");
}

std::optional<std::uint32_t> number_of(const std::string& text) {
  const bool is_number = std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (text.empty() || text.size() > 9 || !is_number) return std::nullopt;
  return static_cast<std::uint32_t>(std::stoul(text));
}

void become(CommandEnd& end, EndCause cause, const std::string& message) {
  end.cause = cause;
  end.message = message;
  end.command_status.reset();
}

}  // namespace

Container::Container(const ContainerOptions& options)
    : options_(options), runtime_(options.runtime), image_(runtime_.image(options.image, pull_of(options))) {
  check_mountpoint(options_.mountpoint);
  take_user(image_.user);
}

// The numbers of a name are in the image; whoever runs it knows them.
void Container::take_user(const std::string& user) {
  const std::size_t colon = user.find(':');
  const std::string name = user.substr(0, colon), group = colon == std::string::npos ? "" : user.substr(colon + 1);
  const std::optional<std::uint32_t> uid = name.empty() || name == "root" ? 0 : number_of(name);
  const std::optional<std::uint32_t> gid = group.empty() || group == "root" ? 0 : number_of(group);
  if ((!uid && !options_.uid) || (!gid && !options_.gid)) {
    throw Error(Errc::bad_request, "containers of the image " + options_.image + " run as " + user +
                                       ", a name that only the image can translate; say who that is with --uid and "
                                       "--gid");
  }
  uid_ = options_.uid.value_or(uid.value_or(0));
  gid_ = options_.gid.value_or(gid.value_or(0));
}

void Container::wrap(CommandSpec& spec, const View& view) {
  name_ = "escrow-" + view.session;
  started_ = session::SystemClock().now();
  std::vector<std::string> run = {runtime_.program(), "run", "--name", name_};
  const auto add = [&](std::initializer_list<std::string> more) { run.insert(run.end(), more); };
  add({"--label", "escrow.session=" + view.session, "--interactive"});
  if (::isatty(STDIN_FILENO) && ::isatty(STDOUT_FILENO)) add({"--tty"});
  add({"--mount", "type=bind,source=" + view.host_mountpoint + ",target=" + options_.mountpoint +
                      (view.read_only ? ",readonly" : "")});
  add({"--workdir", options_.mountpoint});
  for (const std::string& variable : view.environment) add({"--env", variable});
  if (options_.uid || options_.gid) add({"--user", std::to_string(uid_) + ":" + std::to_string(gid_)});
  if (!runtime_.records_stops()) add({"--stop-signal", "SIGKILL"});
  if (!options_.network.empty()) add({"--network", options_.network});
  run.insert(run.end(), options_.runtime_arguments.begin(), options_.runtime_arguments.end());
  run.push_back(image_.id);
  run.insert(run.end(), spec.arguments.begin(), spec.arguments.end());
  spec.arguments = std::move(run);
  spec.cleanup = {runtime_.program(), "rm", "--force", "--volumes", name_};
}

void Container::settle(CommandEnd& end, std::chrono::milliseconds grace) const {
  const bool never_began = end.cause == EndCause::not_found || end.cause == EndCause::failed;
  if (name_.empty() || never_began) return;
  // Nobody watched the one whose supervisor was killed: what it exited with then decides nothing.
  const bool is_decided =
      end.cause == EndCause::cancelled || end.cause == EndCause::timed_out || end.cause == EndCause::lost;
  try {
    std::optional<ContainerRuntime::State> state = runtime_.state(name_);
    if (state && state->is_running) {
      // The runtime's program went first: it was killed, or a terminal keeps it from passing signals on.
      runtime_.stop(name_, grace);
      if (!is_decided) become(end, EndCause::lost, runtime_.program() + " was killed while its container ran");
    } else if (!is_decided && (!state || !state->has_started)) {
      const bool is_missing = end.cause == EndCause::exited && end.status == kNoSuchCommand;
      become(end, is_missing ? EndCause::not_found : EndCause::could_not_run,
             runtime_.program() + " could not start the container; it says why above");
    } else if (!is_decided) {
      end.cause = EndCause::exited;
      end.status = state->exit_code;
      if (const int signal_number = runtime_.stopped_by(name_, started_); signal_number != 0) {
        end.cause = EndCause::cancelled;
        end.signal_number = signal_number;
      }
      if (state->ran_out_of_memory) end.cause = EndCause::oom;
    }
    if (state && state->has_started && !state->is_running) end.command_status = state->exit_code;
    runtime_.remove(name_);
  } catch (const Error& error) {
    become(end, is_decided ? end.cause : EndCause::lost, error.what());
  }
}

}  // namespace escrow::daemon
