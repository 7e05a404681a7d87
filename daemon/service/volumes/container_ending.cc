#include "daemon/service/volumes/container_ending.h"

#include <signal.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "daemon/process/container_verdict.h"

namespace escrow::daemon {

using session::Reason;
using Event = api::ContainerApi::Event;
using Mount = storage::VolumeStore::Mount;

namespace {

std::string attribute(const Event& event, const std::string& name) {
  const auto found = event.attributes.find(name);
  return found == event.attributes.end() ? std::string() : found->second;
}

int number_or(const std::string& text, int otherwise) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : otherwise;
}

// Podman does not tell the signal.
int signal_of(const Event& event) { return number_or(attribute(event, "signal"), SIGTERM); }

std::optional<int> exit_code_of(const Event& event) {
  const std::string code = attribute(event, "exitCode");
  const int number = number_or(code.empty() ? attribute(event, "containerExitCode") : code, -1);
  return number < 0 ? std::nullopt : std::optional(number);
}

// Where nobody can say that it succeeded, its work is kept.
void end_with(std::optional<int> exit_code, Mount& mount) {
  mount.exit_code = exit_code;
  mount.ending = judge({.exit_code = exit_code,
                        .ran_out_of_memory = mount.ran_out_of_memory,
                        .stop_signal = mount.stop_signal});
  const bool is_shared = exit_code && !mount.shared_with.empty();
  const bool is_doubtful = mount.ending == Reason::success && (mount.hides_stops || mount.has_gap);
  if (is_shared || is_doubtful) mount.ending = Reason::cancelled;
  if (is_shared || is_doubtful || mount.ending == Reason::host_lost) mount.keep_result = true;
}

}  // namespace

bool is_start(const Event& event) {
  return event.type == "container" && (event.action == "init" || event.action == "start");
}

bool is_end(const Event& event) {
  return event.type == "container" && (event.action == "die" || event.action == "died");
}

bool give_to_container(const std::string& container, const std::string& runtime, std::int64_t time_ns, Mount& mount) {
  if (mount.ending != Reason::none || time_ns < mount.created_ns || container.empty()) return false;
  if (mount.container == container || mount.shared_with == container) return false;
  if (mount.container.empty()) {
    mount.container = container;
    mount.runtime = runtime;
    mount.has_gap = false;  // all that comes after this event is known
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
  if (event.action == "kill" && asks_to_end(signal_of(event), 0)) mount.stop_signal = signal_of(event);
  if (event.action == "oom") mount.ran_out_of_memory = true;
  if (is_end(event)) end_with(exit_code_of(event), mount);
  return mount.was_started != before.was_started || mount.stop_signal != before.stop_signal ||
         mount.ran_out_of_memory != before.ran_out_of_memory || mount.ending != before.ending;
}

void end_as_found(std::optional<int> exit_code, bool ran_out_of_memory, Mount& mount) {
  mount.has_gap = true;
  if (ran_out_of_memory) mount.ran_out_of_memory = true;
  end_with(exit_code, mount);
}

bool note_gap(const std::vector<Event>& events, const std::string& runtime, Mount& mount) {
  if (mount.ending != Reason::none || mount.has_gap) return false;
  if (mount.container.empty()) {
    mount.has_gap = std::none_of(events.begin(), events.end(),
                                 [&](const Event& event) { return event.time_ns < mount.created_ns; });
    return mount.has_gap;
  }
  if (mount.runtime != runtime) return false;
  mount.has_gap = std::none_of(events.begin(), events.end(), [&](const Event& event) {
    return is_start(event) && event.subject == mount.container && event.time_ns >= mount.created_ns;
  });
  return mount.has_gap;
}

void end_without_verdict(Reason reason, bool keep_result, Mount& mount) {
  mount.ending = reason;
  mount.keep_result = keep_result;
}

}  // namespace escrow::daemon
