#include "daemon/service/volumes/container_watch.h"

#include <signal.h>

#include <algorithm>
#include <chrono>

#include "daemon/process/container_verdict.h"
#include "daemon/service/volumes/container_ending.h"
#include "session/base/error.h"

namespace escrow::daemon {

using session::Errc;
using session::Error;
using session::LogLevel;
using session::Reason;
using Event = api::ContainerApi::Event;
using Mount = storage::VolumeStore::Mount;

namespace {

// A runtime may tell of an event a moment after a later one.
constexpr std::int64_t kOverlap_ns = 2'000'000'000;
// Podman has a log, which may be long.
constexpr std::int64_t kFirstLook_ns = 3600 * std::int64_t{1'000'000'000};

bool has_name(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string no_events_at(const std::string& host) {
  return "podman at " + host + " keeps no events, so a stop of a container could not be told from success; set "
         "events_logger = \"file\" in containers.conf";
}

// An anchor in the store may lag behind by so many events. Docker knows 256.
constexpr std::size_t kMostAnchorLag = 32;

storage::VolumeStore::Anchor anchor_at(const Event& event) {
  return {.time_ns = event.time_ns, .type = event.type, .action = event.action, .subject = event.subject};
}

std::size_t events_after(const std::optional<storage::VolumeStore::Anchor>& anchor, const std::vector<Event>& events) {
  const auto is_it = [&](const Event& event) { return anchor_at(event) == *anchor; };
  if (!anchor) return events.size();
  return static_cast<std::size_t>(std::find_if(events.rbegin(), events.rend(), is_it) - events.rbegin());
}

}  // namespace

ContainerWatch::ContainerWatch(const std::vector<std::string>& runtimes, storage::VolumeStore& store,
                               session::Log& log)
    : store_(store), log_(log) {
  auto held = runtimes_.lock();
  for (const std::string& host : runtimes) {
    held->push_back({.host = host,
                     .api = std::make_unique<api::ContainerApi>(host),
                     .seen_ns = 0,
                     .anchor = store.anchor(host),
                     .stored_anchor = store.anchor(host),
                     .anchor_lag = 0,
                     .known = {},
                     .strangers = {},
                     .unwatched = {},
                     .memory = {},
                     .keeps_events = {},
                     .has_answered = false,
                     .keeps_containers = false,
                     .obstacle = {}});
  }
  // The configuration does not name the runtime of this mount any more: a stop of its container is not heard.
  for (Mount& mount : store.mounts()) {
    const auto is_heard = [&](const Runtime& runtime) { return runtime.host == mount.runtime; };
    if (mount.container.empty() || mount.has_gap || std::any_of(held->begin(), held->end(), is_heard)) continue;
    mount.has_gap = true;
    store_.put(mount);
  }
}

// Not under the lock: a runtime that waits for our own answer to something else may not answer this before.
bool ContainerWatch::meet_strangers() {
  struct Stranger {
    api::ContainerApi* api;
    std::string container;
  };
  std::vector<Stranger> strangers;
  {
    auto runtimes = runtimes_.lock();
    for (Runtime& runtime : *runtimes) {
      for (const auto& [container, since_ns] : runtime.strangers) strangers.push_back({runtime.api.get(), container});
      for (const std::string& container : runtime.unwatched) strangers.push_back({runtime.api.get(), container});
    }
  }
  bool has_met = false;
  for (const Stranger& stranger : strangers) {
    try {
      const auto found = stranger.api->container(stranger.container);
      if (!found) continue;
      auto runtimes = runtimes_.lock();
      for (Runtime& runtime : *runtimes) {
        if (runtime.api.get() != stranger.api) continue;
        runtime.known[stranger.container] = *found;
        runtime.strangers.erase(stranger.container);
        if (runtime.unwatched.erase(stranger.container) != 0) {
          std::unique_ptr<MemoryWatch>& watch = runtime.memory[stranger.container];
          if (found->process > 0) watch = std::make_unique<MemoryWatch>(found->process);
        }
        runtime.seen_ns = 0;  // what came after its start is to be handled once more
      }
      has_met = true;
    } catch (const Error& error) {
      log_.write(LogLevel::debug, "container " + stranger.container + " could not be looked at: " + error.what());
    }
  }
  return has_met;
}

// By the container, not by the name that it was made with: that may be another image's by now.
void ContainerWatch::find_image(const Event& event, Runtime& runtime, Mount& mount) {
  const auto name = event.attributes.find("image");
  if (event.subject != mount.container || !mount.image.empty() || name == event.attributes.end()) return;
  try {
    const auto known = runtime.known.find(mount.container);
    const std::string id =
        known != runtime.known.end() ? known->second.image : runtime.api->image_of(mount.container);
    if (!id.empty()) mount.image = runtime.api->image_digest(id, name->second);
  } catch (const Error& error) {
    log_.write(LogLevel::warning, "the image of container " + mount.container + " is not known: " + error.what());
  }
  if (mount.image.empty()) mount.image = name->second;
  store_.put(mount);
}

// Whether a signal that asks others for something else, such as SIGWINCH, is what this container is to be stopped with.
bool ContainerWatch::is_stop(const Event& kill, Runtime& runtime) {
  const auto number = kill.attributes.find("signal");
  if (kill.action != "kill" || number == kill.attributes.end() || !runtime.api->tells_of_mounts()) return false;
  try {
    const auto container = runtime.api->container(kill.subject);
    return container && asks_to_end(api::signal_number(number->second), container->stop_signal);
  } catch (const Error& error) {
    log_.write(LogLevel::warning, "what stops container " + kill.subject + " is not known: " + error.what());
    return true;  // to be on the safe side
  }
}

// Of what can only be rolled back, before the work is done in vain.
void ContainerWatch::warn(const Mount& mount) {
  const std::string why =
      !mount.shared_with.empty()
          ? "the container " + mount.shared_with + " got it at the same time, and so the same session"
      : mount.hides_stops
          ? "nobody would tell if it were stopped; run it with --stop-signal SIGKILL, so that a stop is no success"
      : mount.has_gap
          ? "its runtime has forgotten events, and a stop may be among them; an exit status other than 0 still counts"
          : "";
  if (why.empty()) return;
  log_.write(LogLevel::warning, "session " + mount.session.text() + " of the volume " + mount.volume +
                                    " in the container " + mount.container + " can only be rolled back, and its result "
                                    "kept: " + why);
}

void ContainerWatch::handle(const Event& event, Runtime& runtime, Mounts& mounts) {
  const bool asks = !runtime.api->tells_of_mounts();
  const bool is_birth = event.type == "container" && (event.action == "create" || is_start(event));
  if (asks && is_birth && !runtime.known.contains(event.subject)) runtime.strangers[event.subject] = event.time_ns;
  for (Mount& mount : mounts) {
    if (mount.ending != Reason::none || event.time_ns < mount.created_ns) continue;
    bool is_changed = false;
    const auto known = runtime.known.find(event.subject);
    if (asks && is_start(event) && known != runtime.known.end() && has_name(known->second.volumes, mount.volume)) {
      is_changed = give_to_container(event.subject, runtime.host, event.time_ns, mount);
      if (!runtime.memory.contains(event.subject)) runtime.unwatched.insert(event.subject);
      mount.hides_stops = mount.hides_stops || known->second.hides_stops;
      if (is_changed) warn(mount);
    }
    if (event.action == "start" || event.action == "die") find_image(event, runtime, mount);
    const bool has_ended = is_end(event) && event.subject == mount.container;
    if (has_ended && ran_out_of_memory(event.subject, runtime)) mount.ran_out_of_memory = true;
    if (apply_event(event, runtime.host, mount)) is_changed = true;
    if (event.subject == mount.container && mount.stop_signal == 0 && is_stop(event, runtime)) {
      mount.stop_signal = SIGTERM;
      is_changed = true;
    }
    if (is_changed) store_.put(mount);
  }
}

bool ContainerWatch::ran_out_of_memory(const std::string& container, Runtime& runtime) {
  const auto watch = runtime.memory.find(container);
  return watch != runtime.memory.end() && watch->second && watch->second->finish();
}

void ContainerWatch::note_gaps(const std::vector<Event>& events, Runtime& runtime, Mounts& mounts) {
  for (Mount& mount : mounts) {
    if (!note_gap(events, runtime.host, mount)) continue;
    store_.put(mount);
    if (!mount.container.empty()) warn(mount);
  }
}

// After the events up to it are handled. Not stored each time: that is a write that waits for the disk.
void ContainerWatch::move_anchor(const std::vector<Event>& events, Runtime& runtime) {
  runtime.anchor_lag += events_after(runtime.anchor, events);
  runtime.anchor = events.empty() ? std::nullopt : std::optional(anchor_at(events.back()));
  if (runtime.anchor && runtime.stored_anchor && runtime.anchor_lag <= kMostAnchorLag) return;
  runtime.anchor_lag = 0;
  if (runtime.anchor == runtime.stored_anchor) return;
  store_.set_anchor(runtime.host, runtime.anchor);
  runtime.stored_anchor = runtime.anchor;
}

void ContainerWatch::catch_up(Runtime& runtime, Mounts& mounts) {
  std::int64_t oldest_ns = mounts.front().created_ns;
  for (const Mount& mount : mounts) oldest_ns = std::min(oldest_ns, mount.created_ns);
  std::int64_t since_ns = std::max(runtime.seen_ns, oldest_ns);
  if (runtime.anchor) since_ns = std::min(since_ns, runtime.anchor->time_ns);
  since_ns -= kOverlap_ns;
  try {
    const std::vector<Event> events = runtime.api->events_since(since_ns);
    runtime.obstacle.clear();
    if (!runtime.has_answered) runtime.keeps_containers = runtime.api->keeps_containers();
    runtime.has_answered = true;
    if (events_after(runtime.anchor, events) == events.size()) note_gaps(events, runtime, mounts);
    for (const Event& event : events) {
      runtime.seen_ns = std::max(runtime.seen_ns, event.time_ns);
      handle(event, runtime, mounts);
    }
    move_anchor(events, runtime);
    std::erase_if(runtime.strangers, [&](const auto& stranger) { return stranger.second < oldest_ns; });
  } catch (const Error& error) {
    if (error.code() != Errc::unavailable && error.code() != Errc::bad_request) throw;
    if (runtime.obstacle.empty()) log_.write(LogLevel::debug, error.what());
    runtime.obstacle = error.what();
  }
}

void ContainerWatch::catch_up() {
  auto runtimes = runtimes_.lock();
  Mounts mounts = store_.mounts();
  if (mounts.empty()) {
    for (Runtime& runtime : *runtimes) runtime.memory.clear();
    return;
  }
  for (Runtime& runtime : *runtimes) catch_up(runtime, mounts);
}

void ContainerWatch::begin() {
  auto runtimes = runtimes_.lock();
  if (!store_.mounts().empty()) return;  // catch_up() has done it
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::int64_t now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  for (Runtime& runtime : *runtimes) {
    try {
      const std::vector<Event> events = runtime.api->events_since(now_ns - kFirstLook_ns);
      if (!events.empty()) move_anchor(events, runtime);
    } catch (const Error& error) {
      log_.write(LogLevel::debug, "the newest event of " + runtime.host + " is not known: " + error.what());
    }
  }
}

// Not under the lock, as above.
void ContainerWatch::ask_for_events() {
  std::vector<std::pair<std::string, api::ContainerApi*>> unknown;
  {
    auto runtimes = runtimes_.lock();
    for (Runtime& runtime : *runtimes)
      if (!runtime.keeps_events.value_or(false)) unknown.emplace_back(runtime.host, runtime.api.get());
  }
  for (const auto& [host, api] : unknown) {
    bool keeps_events = false;
    try {
      keeps_events = api->keeps_events();
    } catch (const Error& error) {
      log_.write(LogLevel::debug, "whether " + host + " keeps events is not known: " + error.what());
      continue;
    }
    auto runtimes = runtimes_.lock();
    for (Runtime& runtime : *runtimes) {
      if (runtime.api.get() != api) continue;
      if (!keeps_events && !runtime.keeps_events) log_.write(LogLevel::warning, no_events_at(runtime.host));
      runtime.keeps_events = keeps_events;
    }
  }
}

void ContainerWatch::require_runtime() {
  std::string obstacles;
  auto runtimes = runtimes_.lock();
  for (Runtime& runtime : *runtimes) {
    try {
      runtime.api->ping();
      if (runtime.keeps_events.value_or(true)) return;
      obstacles += (obstacles.empty() ? "" : "; ") + no_events_at(runtime.host);
    } catch (const Error& error) {
      obstacles += (obstacles.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  throw Error(Errc::unavailable,
              "no container can have the volume, because nobody would say how it ends (" +
                  (obstacles.empty() ? std::string("the configuration names no runtimes") : obstacles) +
                  "); start the runtime's API, or name its socket in \"runtimes\"");
}

bool ContainerWatch::has_exact_ids(const std::string& runtime) {
  auto runtimes = runtimes_.lock();
  return std::any_of(runtimes->begin(), runtimes->end(),
                     [&](const Runtime& known) { return known.host == runtime && known.api->tells_of_mounts(); });
}

bool ContainerWatch::knows_all(std::int64_t since_ns) {
  auto runtimes = runtimes_.lock();
  bool has_answer = false;
  for (const Runtime& runtime : *runtimes) {
    if (runtime.has_answered && !runtime.obstacle.empty()) return false;
    has_answer = has_answer || runtime.has_answered;
    for (const auto& [container, started_ns] : runtime.strangers) {
      if (started_ns >= since_ns) return false;
    }
  }
  return has_answer;
}

ContainerWatch::Found ContainerWatch::look(const Mount& mount) {
  api::ContainerApi* api = nullptr;  // lives as long as this, self-locking
  bool keeps_containers = false;
  {
    auto runtimes = runtimes_.lock();
    for (Runtime& runtime : *runtimes) {
      if (runtime.host != mount.runtime) continue;
      api = runtime.api.get();
      keeps_containers = runtime.keeps_containers;
    }
  }
  if (api == nullptr) return {};
  try {
    const auto container = api->container(mount.container);
    if (!container) return {.presence = Presence::gone};
    if (container->is_running) return {.presence = Presence::running};
    Found found{.presence = Presence::ended, .exit_code = {}, .ran_out_of_memory = container->ran_out_of_memory};
    // A runtime that takes its containers with it stops them, and tells nobody; and what is known of a container that
    // has not been started again is how it ended another time.
    if (keeps_containers && container->started_ns >= mount.created_ns && api->keeps_containers()) {
      found.exit_code = container->exit_code;
    }
    return found;
  } catch (const Error&) {
    return {};
  }
}

void ContainerWatch::change(const session::SessionId& session, const std::function<void(Mount&)>& edit) {
  const auto runtimes = runtimes_.lock();
  for (Mount& mount : store_.mounts()) {
    if (mount.session != session) continue;
    edit(mount);
    store_.put(mount);
  }
}

}  // namespace escrow::daemon
