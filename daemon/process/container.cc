#include "daemon/process/container.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <sstream>

#include "daemon/process/confinement.h"
#include "daemon/process/container_verdict.h"
#include "session/base/error.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;

constexpr int kNoSuchCommand = 127;
constexpr std::chrono::seconds kEventPatience{30};  // for the event of an end that is known

ContainerRuntime::Pull pull_of(const ContainerOptions& options) {
  return options.pull == "never" ? ContainerRuntime::Pull::never : ContainerRuntime::Pull::missing;
}

// The runtimes take mounts as comma-separated fields.
const ContainerOptions& checked(const ContainerOptions& options) {
  const std::string& path = options.mountpoint;
  if (path.starts_with('/') && path.size() > 1 && !path.ends_with('/') && path.find(',') == std::string::npos) {
    return options;
  }
  throw Error(Errc::bad_request, "--mountpoint " + session::quote_path(path) +
                                     " cannot be used with --image: it is the path in the container, absolute, not /, "
                                     "without a comma or a slash at its end");
}

std::optional<std::uint32_t> number_of(const std::string& text) {
  const bool is_number = std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (text.empty() || text.size() > 9 || !is_number) return std::nullopt;
  return static_cast<std::uint32_t>(std::stoul(text));
}

// What breaks the way in which Escrow starts, watches or ends a container, and why.
struct Unusable {
  const char* name;
  char letter;  // 0: it has none
  const char* why;
  const char* with = nullptr;  // which runtime; null: both
};
constexpr Unusable kUnusable[] = {
    {"--name", 0, "Escrow names the container after its session"},
    {"--rm", 0, "Escrow asks how the container ended before it removes it"},
    {"--rmi", 0, "Escrow asks how the container ended before it removes it"},
    {"--detach", 'd', "Escrow waits for the container's end"},
    {"--restart", 0, "the first end of the container decides"},
    {"--sig-proxy", 0, "the signals that end a run reach the container through it"},
    {"--user", 'u', "whom the command runs as is said with --uid and --gid"},
    {"--rootfs", 0, "the image is said with --image"},
    {"--stop-signal", 0, "podman tells nobody of a stop, so it has to be one that cannot be trapped", "podman"},
    {"--pidfile", 0, "Escrow watches the container's memory by it", "podman"},
    {"--cidfile", 0, "Escrow watches the container's memory by it", "docker"},
};

// "--name=x", "--name", "-d" and "-itd".
bool names_option(const std::string& argument, const Unusable& option) {
  if (argument.starts_with("--")) return argument.substr(0, argument.find('=')) == option.name;
  if (!argument.starts_with('-') || option.letter == 0) return false;
  // Of those before it each is one without a value.
  const std::size_t at = argument.find_first_not_of("ditPq", 1);
  return argument.substr(1, at).find(option.letter) != std::string::npos;
}

void check_runtime_arguments(const std::vector<std::string>& arguments, const std::string& program) {
  for (const std::string& argument : arguments) {
    if (argument.find(ContainerRuntime::kSessionLabel) != std::string::npos) {
      throw Error(Errc::bad_request, "--runtime-arg=" + session::quote_path(argument) + " cannot be used: Escrow finds "
                                         "the container by this label; leave it out");
    }
    for (const Unusable& option : kUnusable) {
      if (option.with != nullptr && program != option.with) continue;
      if (!names_option(argument, option)) continue;
      throw Error(Errc::bad_request, "--runtime-arg=" + session::quote_path(argument) + " cannot be used: " +
                                         option.why + "; leave it out");
    }
  }
}

ContainerRuntime::Image find_image(const ContainerOptions& options, const ContainerRuntime& runtime) {
  check_runtime_arguments(options.runtime_arguments, runtime.program());
  return runtime.image(options.image, pull_of(options));
}

// The fields of the first line of a passwd(5) or group(5) whose name it is; empty: there is none.
std::vector<std::string> line_of(const std::string& table, const std::string& name) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + ":")) continue;
    std::vector<std::string> fields;
    std::istringstream words(line);
    for (std::string field; std::getline(words, field, ':');) fields.push_back(field);
    return fields;
  }
  return {};
}

void add_limits(std::vector<std::string>& run, const Containment::Limits& limits) {
  const auto add = [&](std::initializer_list<std::string> more) { run.insert(run.end(), more); };
  add({"--pids-limit", std::to_string(limits.processes)});
  if (limits.memory_bytes) {
    const std::string bytes = std::to_string(*limits.memory_bytes);
    add({"--memory", bytes, "--memory-swap", bytes});  // the latter is both together
  }
  if (limits.millicpus) {
    std::array<char, 32> cpus;
    std::snprintf(cpus.data(), cpus.size(), "%llu.%03u", static_cast<unsigned long long>(*limits.millicpus / 1000),
                  static_cast<unsigned>(*limits.millicpus % 1000));
    add({"--cpus", cpus.data()});
  }
}

// The runtime writes into it whose the container is, and remembers its path.
std::string container_file(const std::string& directory) { return directory + "/container"; }

void end_as(CommandEnd& end, EndCause cause, const std::string& message) {
  end.cause = cause;
  end.message = message;
  end.command_status.reset();
}

}  // namespace

Container::Container(const ContainerOptions& options)
    : options_(checked(options)), runtime_(options.runtime), image_(find_image(options, runtime_)) {
  take_user(image_.user);
}

// As the image's own passwd and group have it.
void Container::take_user(const std::string& user) {
  const std::size_t colon = user.find(':');
  const std::string name = user.substr(0, colon), group = colon == std::string::npos ? "" : user.substr(colon + 1);
  std::optional<std::uint32_t> uid = name.empty() || name == "root" ? 0 : number_of(name);
  std::optional<std::uint32_t> gid = group.empty() || group == "root" ? 0 : number_of(group);
  const bool is_named = (!uid && !options_.uid) || (!gid && !options_.gid);
  if (is_named && !uid) {
    const std::vector<std::string> fields = line_of(runtime_.file_of(image_, "/etc/passwd"), name);
    if (fields.size() > 2) uid = number_of(fields[2]);
    if (fields.size() > 3 && group.empty()) gid = number_of(fields[3]);
  }
  if (is_named && !gid) {
    const std::vector<std::string> fields = line_of(runtime_.file_of(image_, "/etc/group"), group);
    if (fields.size() > 2) gid = number_of(fields[2]);
  }
  if ((!uid && !options_.uid) || (!gid && !options_.gid)) {
    throw Error(Errc::bad_request, "containers of the image " + options_.image + " run as " + user +
                                       ", whom its /etc/passwd and /etc/group do not name; say who that is with --uid "
                                       "and --gid");
  }
  uid_ = options_.uid.value_or(uid.value_or(0));
  gid_ = options_.gid.value_or(gid.value_or(0));
}

void Container::wrap(CommandSpec& spec, const View& view) {
  session_ = view.session;
  directory_ = view.directory;
  events_ = std::make_unique<ContainerEvents>(runtime_, session_, session::SystemClock().now());
  std::vector<std::string> run = {runtime_.program(), "run", "--name", "escrow-" + view.session};
  const auto add = [&](std::initializer_list<std::string> more) { run.insert(run.end(), more); };
  add({"--label", ContainerRuntime::kSessionLabel + ("=" + view.session), "--interactive"});
  if (::isatty(STDIN_FILENO) && ::isatty(STDOUT_FILENO)) add({"--tty"});
  add({"--mount", "type=bind,source=" + view.host_mountpoint + ",target=" + options_.mountpoint +
                      (view.read_only ? ",readonly" : "")});
  if (!view.objects.empty())
    add({"--mount", "type=bind,source=" + view.objects + ",target=" + kObjectsInside + ",readonly"});
  add({"--workdir", options_.mountpoint});
  for (const std::string& variable : view.environment) add({"--env", variable});
  if (options_.uid || options_.gid) add({"--user", std::to_string(uid_) + ":" + std::to_string(gid_)});
  if (!runtime_.records_stops()) add({"--stop-signal", "SIGKILL"});
  const std::string file = container_file(view.directory);
  const bool has_process = runtime_.writes_process();
  add({has_process ? "--pidfile" : "--cidfile", file});
  memory_ = std::make_unique<MemoryWatch>(file, has_process ? MemoryWatch::FileSays::process
                                                            : MemoryWatch::FileSays::id);
  add_limits(run, view.limits);
  spec.limits = {};  // the runtime's program is not the container
  if (!options_.network.empty()) add({"--network", options_.network});
  run.insert(run.end(), options_.runtime_arguments.begin(), options_.runtime_arguments.end());
  run.push_back(image_.id);
  run.insert(run.end(), spec.arguments.begin(), spec.arguments.end());
  spec.arguments = std::move(run);
  spec.container = {.runtime = runtime_.program(), .session = view.session, .file = file};
}

// Another option among the runtime's arguments could have named it.
void Container::check_image(const ContainerRuntime::State& state) const {
  if (state.image == image_.id || runtime_.image(state.image, ContainerRuntime::Pull::never).id == image_.id) return;
  throw Error(Errc::bad_request, "the container ran another image than " + options_.image + ", " + state.image +
                                     ": an argument of --runtime-arg named it; name it with --image");
}

std::optional<ContainerRuntime::Found> Container::find() const {
  return runtime_.find(session_, container_file(directory_));
}

// It ended by itself: nothing but the runtime knows how.
void Container::take_end(const ContainerRuntime::Found& container, CommandEnd& end) const {
  const ContainerRuntime::State& state = container.state;
  const ContainerEvents::Heard heard = events_->until_end(container.id, state.stop_signal, kEventPatience);
  ContainerEnd ended{.exit_code = state.exit_code,
                     .ran_out_of_memory = state.ran_out_of_memory || memory_->finish(),
                     .stop_signal = heard.stop_signal};
  end.cause = EndCause::exited;
  end.status = state.exit_code;
  const session::Reason reason = judge(ended);
  if (reason == session::Reason::oom) end.cause = EndCause::oom;
  if (reason == session::Reason::cancelled) {
    end.cause = EndCause::cancelled;
    end.signal_number = ended.stop_signal;
  }
  if (reason == session::Reason::success && !heard.is_whole) {
    end_as(end, EndCause::lost, "the container exited with 0, but " + runtime_.program() +
                                    " did not tell all that happened to it, so it may have been stopped");
    end.keep_result = true;
  }
}

void Container::correct(CommandEnd& end, std::chrono::milliseconds grace) const {
  // Nobody watched the one whose supervisor was killed: what it exited with then decides nothing.
  const bool is_lost = end.cause == EndCause::lost;
  const bool is_decided = end.cause == EndCause::cancelled || end.cause == EndCause::timed_out || is_lost;
  const std::optional<ContainerRuntime::Found> found = find();
  const bool has_started = found && found->state.has_started;
  if (has_started && !found->state.is_running) {
    end.command_status = found->state.exit_code;
    // It may have succeeded, and only the runtime was not there to say so.
    if (is_lost && found->state.exit_code == 0) end.keep_result = true;
  }
  if (found && found->state.is_running) {
    // The runtime's program went first: it was killed, or a terminal keeps it from passing signals on.
    if (!is_decided) end_as(end, EndCause::lost, runtime_.program() + " was killed while its container ran");
    if (found->state.is_paused) runtime_.unpause(found->id);
    runtime_.stop(found->id, is_decided && !is_lost ? end.grace_left : grace);
  } else if (!is_decided && !has_started) {
    const bool is_missing = end.cause == EndCause::exited && end.status == kNoSuchCommand;
    end_as(end, is_missing ? EndCause::not_found : EndCause::could_not_run,
           runtime_.program() + " could not start the container; it says why above");
  } else if (!is_decided) {
    take_end(*found, end);
  }
  if (has_started) check_image(found->state);
}

std::string Container::settle(CommandEnd& end, std::chrono::milliseconds grace) const {
  const bool never_began = end.cause == EndCause::not_found || end.cause == EndCause::failed;
  if (session_.empty() || never_began) return {};
  const auto give_up = [&](const Error& why) {
    const bool is_decided = end.cause == EndCause::cancelled || end.cause == EndCause::timed_out;
    end_as(end, is_decided ? end.cause : EndCause::lost, why.what());
  };
  try {
    correct(end, grace);
  } catch (const Error& error) {
    give_up(error);
    // A runtime that restarts has its containers afterwards, but not all that it knew of them.
    if (runtime_.comes_back(grace)) {
      try {
        correct(end, grace);
      } catch (const Error& again) {
        give_up(again);
      }
    }
  }
  try {
    if (const std::optional<ContainerRuntime::Found> left = find()) runtime_.remove(left->id);
  } catch (const Error& error) {
    return std::string("a container of the run may be left (") + error.what() +
           "); the next `escrow run --image` of this repository removes it";
  }
  return {};
}

std::string Container::sweep(
    const std::function<std::optional<std::string>(const std::string& session)>& directory_of) const {
  std::string obstacles;
  try {
    for (const ContainerRuntime::Labelled& one : runtime_.labelled()) {
      const std::optional<std::string> directory = directory_of(one.session);
      if (!directory) continue;
      try {
        const std::optional<ContainerRuntime::State> state = runtime_.state(one.id);
        if (state && state->file == container_file(*directory)) runtime_.remove(one.id);
      } catch (const Error& error) {
        obstacles += (obstacles.empty() ? "" : "; ") + std::string(error.what());
      }
    }
  } catch (const Error& error) {
    obstacles += (obstacles.empty() ? "" : "; ") + std::string(error.what());
  }
  return obstacles.empty() ? "" : "containers of earlier runs may be left: " + obstacles;
}

}  // namespace escrow::daemon
