#include "daemon/container_ending.h"

#include <signal.h>

#include <charconv>
#include <set>

namespace escrow::daemon {

using session::Reason;
using Event = api::ContainerApi::Event;
using Mount = storage::VolumeStore::Mount;

namespace {

std::string attribute(const Event& event, const std::string& name) {
  const auto found = event.attributes.find(name);
  return found == event.attributes.end() ? std::string() : found->second;
}

int number_of(const std::string& text, int otherwise) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : otherwise;
}

// What `docker run` passes on without anybody wanting an end: a terminal's new size and the like.
bool is_harmless(int signal_number) {
  static const std::set<int> harmless = {SIGWINCH, SIGURG, SIGCHLD, SIGCONT, SIGPIPE};
  return harmless.contains(signal_number);
}

// Podman does not tell the signal.
int signal_of(const Event& event) { return number_of(attribute(event, "signal"), SIGTERM); }

int exit_code_of(const Event& event) {
  const std::string code = attribute(event, "exitCode");
  return number_of(code.empty() ? attribute(event, "containerExitCode") : code, -1);
}

void end_by(const Event& event, Mount& mount) {
  const int exit_code = exit_code_of(event);
  if (exit_code >= 0) mount.exit_code = exit_code;
  if (exit_code < 0) {
    mount.ending = Reason::host_lost;
    mount.keep_result = true;
  } else if (!mount.shared_with.empty()) {
    mount.ending = Reason::cancelled;
    mount.keep_result = true;
  } else if (mount.ran_out_of_memory) {
    mount.ending = Reason::oom;
  } else if (mount.stop_signal != 0) {
    mount.ending = Reason::cancelled;
  } else if (exit_code == 0 && mount.hides_stops) {
    mount.ending = Reason::cancelled;
    mount.keep_result = true;
  } else {
    mount.ending = exit_code == 0 ? Reason::success : Reason::exit_status;
  }
}

}  // namespace

bool give_to_container(const std::string& container, const std::string& runtime, std::int64_t time_ns, Mount& mount) {
  if (mount.ending != Reason::none || time_ns < mount.created_ns || container.empty()) return false;
  if (mount.container == container || mount.shared_with == container) return false;
  if (mount.container.empty()) {
    mount.container = container;
    mount.runtime = runtime;
  } else {
    mount.shared_with = container;
  }
  return true;
}

bool apply_event(const Event& event, const std::string& runtime, Mount& mount) {
  if (mount.ending != Reason::none || event.time_ns < mount.created_ns) return false;
  // Docker tells of each mount of its own, so what has a container already is not meant.
  if (event.type == "volume" && event.action == "mount" && event.subject == mount.volume && mount.container.empty()) {
    return give_to_container(attribute(event, "container"), runtime, event.time_ns, mount);
  }
  if (event.type != "container" || event.subject != mount.container || mount.container.empty()) return false;
  const Mount before = mount;
  if (event.action == "start") mount.was_started = true;
  if (event.action == "stop") mount.stop_signal = SIGTERM;
  if (event.action == "kill" && !is_harmless(signal_of(event))) mount.stop_signal = signal_of(event);
  if (event.action == "oom") mount.ran_out_of_memory = true;
  if (event.action == "die" || event.action == "died") end_by(event, mount);
  return mount.was_started != before.was_started || mount.stop_signal != before.stop_signal ||
         mount.ran_out_of_memory != before.ran_out_of_memory || mount.ending != before.ending;
}

void end_without_verdict(Reason reason, bool keep_result, Mount& mount) {
  mount.ending = reason;
  mount.keep_result = keep_result;
}

}  // namespace escrow::daemon
