#include "daemon/process/container_runtime.h"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <thread>
#include <vector>

#include "api/container_api.h"
#include "daemon/process/cgroup.h"
#include "session/base/error.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;
using namespace std::chrono_literals;

constexpr int kRemovals = 5;
constexpr auto kRemovalPause = 200ms, kAnswerPause = 100ms;
constexpr auto kEndPatience = 20s;  // for processes that were killed to be gone

// With its fraction: what happened within the last second counts.
std::string seconds_text(const session::Timestamp& time) {
  std::string fraction = std::to_string(time.nanoseconds);
  return std::to_string(time.seconds) + "." + std::string(9 - fraction.size(), '0') + fraction;
}

// Empty, or why it cannot be used. Docker's client answers without its server, so it is asked for the server's version;
// podman may keep no events (containers.conf(5), events_logger).
std::string obstacle_of(const std::string& program) {
  const std::string format = program == "docker" ? "{{.Server.Version}}" : "{{.Client.Version}}";
  const ProgramOutput answer = run_program({program, "version", "--format", format});
  if (answer.status != 0 || program == "docker") return answer.status == 0 ? "" : answer.complaint();
  const std::string now = seconds_text(session::SystemClock().now());
  const ProgramOutput events = run_program({program, "events", "--stream=false", "--since", now});
  if (events.status == 0) return "";
  return "a stop of a container could not be told from success, because its events cannot be read: " +
         events.complaint() + "; set events_logger = \"file\" in containers.conf";
}

bool names_nothing(const ProgramOutput& answer) {
  for (const char* words : {"No such", "no such", "not known"})
    if (answer.err.find(words) != std::string::npos) return true;
  return false;
}

[[noreturn]] void complain(const std::string& program, const std::string& what, const ProgramOutput& answer) {
  throw Error(Errc::unavailable, program + " could not " + what + ": " + answer.complaint());
}

// The content of the first regular file of a tar archive; tar(5).
std::string first_file_of(const std::string& archive) {
  constexpr std::size_t kBlock = 512, kSizeAt = 124, kSizeLength = 12, kTypeAt = 156;
  for (std::size_t at = 0; at + kBlock <= archive.size();) {
    const char type = archive[at + kTypeAt];
    const std::size_t size = std::strtoull(archive.substr(at + kSizeAt, kSizeLength).c_str(), nullptr, 8);
    at += kBlock;
    if (type == '0' || type == 0) return archive.substr(at, size);
    at += (size + kBlock - 1) / kBlock * kBlock;
  }
  return {};
}

}  // namespace

ContainerRuntime::ContainerRuntime(const std::string& wanted) {
  const std::vector<std::string> candidates =
      wanted == "auto" ? std::vector<std::string>{"docker", "podman"} : std::vector<std::string>{wanted};
  std::string obstacles;
  for (const std::string& candidate : candidates) {
    const std::string obstacle = obstacle_of(candidate);
    if (obstacle.empty()) {
      program_ = candidate;
      return;
    }
    obstacles += (obstacles.empty() ? "" : "; ") + candidate + ": " + obstacle;
  }
  throw Error(Errc::unavailable, "no container can be started (" + obstacles +
                                     "); install and start docker or podman, or get the right to use it");
}

ContainerRuntime ContainerRuntime::known(const std::string& program, std::chrono::steady_clock::time_point deadline) {
  ContainerRuntime runtime;
  runtime.program_ = program;
  runtime.deadline_ = deadline;
  return runtime;
}

ProgramOutput ContainerRuntime::ask(const std::vector<std::string>& arguments) const {
  return run_program(arguments, {.deadline = deadline_});
}

ContainerRuntime::Image ContainerRuntime::image(const std::string& name, Pull pull) const {
  const std::vector<std::string> look = {program_, "image", "inspect", "--format",
                                         "{{.Id}}|{{.Config.User}}|{{range .RepoDigests}}{{.}} {{end}}", "--", name};
  ProgramOutput answer = ask(look);
  if (answer.status != 0 && names_nothing(answer) && pull == Pull::missing) {
    const ProgramOutput pulled = ask({program_, "pull", "--quiet", "--", name});
    if (pulled.status != 0) complain(program_, "pull the image " + name, pulled);
    answer = ask(look);
  }
  if (answer.status != 0 && names_nothing(answer)) {
    throw Error(Errc::not_found, program_ + " has no image " + name + "; pull it, or leave out --pull never");
  }
  if (answer.status != 0) complain(program_, "look at the image " + name, answer);
  std::istringstream line(answer.out);
  Image image;
  std::string digests;
  std::getline(line, image.id, '|');
  std::getline(line, image.user, '|');
  std::getline(line, digests, ' ');
  if (!image.id.starts_with("sha256:")) image.id.insert(0, "sha256:");
  while (!digests.empty() && digests.back() == '\n') digests.pop_back();
  image.digest = digests.empty() ? name + "@" + image.id : digests;
  return image;
}

std::string ContainerRuntime::file_of(const Image& image, const std::string& path) const {
  const ProgramOutput made = ask({program_, "create", "--network", "none", image.id, "/nothing"});
  std::istringstream lines(made.out);
  std::string container;
  if (made.status != 0 || !(lines >> container)) complain(program_, "look into the image " + image.digest, made);
  std::vector<std::string> copy = {program_, "cp", container + ":" + path, "-"};
  if (program_ == "docker") copy.insert(copy.begin() + 2, "--follow-link");  // podman does so unasked
  const ProgramOutput archive = ask(copy);
  remove(container);
  return archive.status == 0 ? first_file_of(archive.out) : std::string();
}

std::optional<ContainerRuntime::State> ContainerRuntime::state(const std::string& container) const {
  const std::string file = writes_process() ? "{{.PidFile}}" : "{{.HostConfig.ContainerIDFile}}";
  const ProgramOutput answer =
      ask({program_, "container", "inspect", "--format",
                   "{{.State.Status}} {{.State.Running}} {{.State.OOMKilled}} {{.State.ExitCode}} {{.Image}} "
                   "{{.Config.StopSignal}}\n" + file, container});
  if (answer.status != 0 && names_nothing(answer)) return std::nullopt;
  if (answer.status != 0) complain(program_, "say how the container " + container + " ended", answer);
  std::istringstream lines(answer.out);
  std::string words;
  State state;
  std::getline(lines, words);
  std::getline(lines, state.file);
  std::istringstream line(words);
  std::string status, running, out_of_memory, stop_signal;
  line >> status >> running >> out_of_memory >> state.exit_code >> state.image >> stop_signal;
  if (!state.image.starts_with("sha256:")) state.image.insert(0, "sha256:");
  state.stop_signal = api::signal_number(stop_signal);
  state.has_started = status != "created" && status != "configured" && status != "initialized";
  state.is_paused = status == "paused";
  state.is_running = running == "true" || state.is_paused;  // podman says false of a paused one
  state.ran_out_of_memory = out_of_memory == "true";
  return state;
}

std::vector<ContainerRuntime::Labelled> ContainerRuntime::labelled(const std::string& session) const {
  const std::string label = kSessionLabel;
  const ProgramOutput answer =
      ask({program_, "ps", "--all", "--no-trunc", "--filter",
                   "label=" + label + (session.empty() ? "" : "=" + session), "--format",
                   "{{.ID}} " + (program_ == "docker" ? "{{.Label \"" + label + "\"}}" : "{{.Labels}}")});
  if (answer.status != 0) complain(program_, "list the containers of sessions", answer);
  std::istringstream lines(answer.out);
  std::vector<Labelled> found;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    // Podman gives all labels, as a map (NAME:VALUE) or, from 6.0 on, as text (NAME=VALUE).
    std::size_t value = space + 1;
    if (program_ != "docker" && (value = line.find(label, value)) != std::string::npos) value += label.size() + 1;
    const auto is_of_id = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    const auto begin = line.begin() + static_cast<std::ptrdiff_t>(std::min(value, line.size()));
    found.push_back({.id = line.substr(0, space), .session = {begin, std::find_if_not(begin, line.end(), is_of_id)}});
  }
  return found;
}

std::optional<ContainerRuntime::Found> ContainerRuntime::find(const std::string& session,
                                                              const std::string& file) const {
  for (const Labelled& one : labelled(session)) {
    std::optional<State> found = state(one.id);
    if (found && found->file == file) return Found{one.id, *std::move(found)};
  }
  return std::nullopt;
}

void ContainerRuntime::hear_events(const std::string& session, const session::Timestamp& since,
                                   const std::function<void(Event)>& hear, int until) const {
  const bool is_docker = program_ == "docker";
  const std::string format = is_docker ? "{{.Actor.ID}} {{.Action}} {{index .Actor.Attributes \"signal\"}}"
                                       : "{{.ID}} {{.Status}}";
  std::string rest;  // a line that is not whole yet
  const auto take = [&](std::string_view piece) {
    rest += piece;
    for (std::size_t end = rest.find('\n'); end != std::string::npos; end = rest.find('\n')) {
      std::istringstream words(rest.substr(0, end));
      rest.erase(0, end + 1);
      Event event;
      words >> event.container >> event.action >> event.signal_number;
      hear(std::move(event));
    }
  };
  std::vector<std::string> words = {program_, "events", "--since", seconds_text(since), "--format", format};
  // Podman before 4.3 tells the end of a container without its labels.
  std::vector<std::string> filters = {"type=container"};
  if (is_docker) filters = {std::string("label=") + kSessionLabel + "=" + session, "event=start", "event=stop",
                            "event=kill", "event=die"};
  for (const std::string& filter : filters) words.insert(words.end(), {"--filter", filter});
  run_program(words, {.until = until, .hear = take});
}

void ContainerRuntime::stop(const std::string& container, std::chrono::milliseconds grace) const {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(grace).count();
  ask({program_, "stop", "--time", std::to_string(seconds), container});
}

void ContainerRuntime::unpause(const std::string& container) const { ask({program_, "unpause", container}); }

// Podman 4.3 refuses the first time where a paused container was killed; docker, where somebody else removes it. A
// dockerd that was killed before it had noted the start of a container removes it as one that never ran: its processes
// go on.
void ContainerRuntime::remove(const std::string& container) const {
  for (int left = kRemovals; left > 0; --left) {
    const ProgramOutput answer = ask({program_, "rm", "--force", "--volumes", container});
    if (answer.status == 0 || names_nothing(answer)) {
      if (!has_server() || end_container_of_docker(container, kEndPatience)) return;
      throw Error(Errc::unavailable, program_ + " has removed the container " + container + ", but what it ran goes "
                                         "on, and could not be killed; its cgroup has that id");
    }
    if (left == 1) complain(program_, "remove the container " + container, answer);
    unpause(container);
    std::this_thread::sleep_for(kRemovalPause);
  }
}

bool ContainerRuntime::comes_back(std::chrono::milliseconds patience) const {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!obstacle_of(program_).empty()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kAnswerPause);
  }
  return true;
}

}  // namespace escrow::daemon
