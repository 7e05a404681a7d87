#include "daemon/service/volumes/volume_plugin.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "api/problem.h"
#include "daemon/service/volumes/container_ending.h"
#include "session/base/error.h"

namespace escrow::daemon {

using api::VolumeRequest;
using session::Errc;
using session::Error;
using session::LogLevel;
using session::Reason;
using std::chrono::steady_clock;
using Volume = storage::VolumeStore::Volume;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kLongestName = 255;
constexpr unsigned kThreads = 64;           // mounts that wait for each other, and what they wait for
constexpr auto kClaimPatience = 60s;        // for the container before to be named
constexpr auto kVerdictPatience = 3s;       // for a container's end to be told, once its volume is given back
// Podman waits 5 s for an answer. A commit that takes longer goes on by itself.
constexpr const char* kRuntimesPatience = "wait=4";
constexpr auto kVolumePause = 50ms;
constexpr auto kNameEvery = 100ms, kLookAtVolumesEvery = 500ms, kPluginIdle = 5'000ms;
constexpr auto kLookAtRunningEvery = 10s;
constexpr auto kUnnamedPatience = 60s;      // after it nobody will say any more whose a mount is

std::int64_t now_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

api::HttpServer::Options plugin_server_options(const EscrowdConfig& config) {
  api::HttpServer::Options options;
  options.socket = config.volume_plugin->socket;
  options.content_directory = config.state_directory;
  options.threads = kThreads;
  std::error_code ignored;  // listening says what is wrong
  std::filesystem::create_directories(std::filesystem::path(options.socket).parent_path(), ignored);
  return options;
}

bool is_unnamed(const storage::VolumeStore::Mount& mount) {
  return mount.container.empty() && mount.ending == Reason::none;
}

}  // namespace

VolumePlugin::VolumePlugin(const EscrowdConfig& config, const LiveConfig& live, ServiceRepositories& repositories,
                           ServiceSessions& sessions, storage::ServiceStore& facts, session::Log& log)
    : config_(config),
      log_(log),
      store_(config.state_directory + "/volumes.db"),
      sessions_(config, repositories, sessions, facts, store_, log),
      watch_(config.volume_plugin->runtimes, store_, log),
      stopping_(false),
      long_verbs_(live, {.all = 64, .of_one = 64},
                  [](api::Call&) { return api::json_answer(api::volume_done_json()); }) {
  forget_unused();
  add_routes();
  try {
    listener_ = std::thread([this] { hear_until_stopped(); });
    watcher_ = std::thread([this] { watch_until_stopped(); });
    const auto handle = [this](api::HttpRequest request) {
      request.prefer = kRuntimesPatience;
      return router_.answer(request);
    };
    api::HttpServer::Options options = plugin_server_options(config);
    options.admit = [this](const api::HttpRequest& request, std::optional<std::uint64_t> length) {
      return router_.refusal_of_content(request, length);
    };
    server_ = std::make_unique<api::HttpServer>(options, handle, log);
  } catch (...) {
    stop();
    throw;
  }
}

VolumePlugin::~VolumePlugin() { stop(); }

void VolumePlugin::stop() {
  *stopping_.lock() = true;
  changed_.notify_all();
  server_.reset();
  for (std::thread* thread : {&listener_, &watcher_})
    if (thread->joinable()) thread->join();
}

// A service that was killed had noted mounts that then nobody was told of: their hosts noticed, and left.
void VolumePlugin::forget_unused() {
  for (Mount mount : store_.mounts()) {
    try {
      if (!is_unnamed(mount) || sessions_.is_hosted(mount)) continue;
      end_without_verdict(Reason::not_started, false, mount);
      sessions_.end(mount);
    } catch (const Error& error) {
      log_.write(LogLevel::warning, "a mount of the volume " + mount.volume + " is left as it is: " + error.what());
    }
  }
}

// ---- The protocol.

void VolumePlugin::add_routes() {
  const auto add = [this](const std::string& path, const std::function<std::string(const VolumeRequest&)>& verb) {
    const auto handler = [verb, path, this](api::Call& call) -> api::HttpReply {
      // What is refused is a sentence in the protocol's own form, whatever kind of Error it is.
      try {
        return api::json_answer(verb(api::read_volume_request(call.request.body)));
      } catch (const Error& error) {
        log_.write(LogLevel::info, path + " was refused: " + error.what());
        return api::json_answer(api::volume_refusal_json(std::string("escrow: ") + error.what()), 500);
      }
    };
    router_.add("POST", path, path.ends_with(".Unmount") ? long_verbs_.waiting(handler) : handler);
  };
  add("/Plugin.Activate", [](const VolumeRequest&) { return api::volume_activation_json(); });
  add("/VolumeDriver.Capabilities", [](const VolumeRequest&) { return api::volume_capabilities_json(); });
  for (const auto& [name, verb] : std::map<std::string, Verb>{{"Create", &VolumePlugin::create},
                                                              {"Get", &VolumePlugin::get},
                                                              {"List", &VolumePlugin::list},
                                                              {"Path", &VolumePlugin::path},
                                                              {"Remove", &VolumePlugin::remove},
                                                              {"Mount", &VolumePlugin::mount},
                                                              {"Unmount", &VolumePlugin::unmount}}) {
    add("/VolumeDriver." + name, [this, verb](const VolumeRequest& request) { return (this->*verb)(request); });
  }
}

Volume VolumePlugin::require(const std::string& name) const {
  if (name.empty()) {
    // Docker sends a request whose answer was lost once more without its body.
    throw Error(Errc::bad_request, "the runtime's request names no volume; try again");
  }
  std::optional<Volume> found = store_.find(name);
  if (!found) throw Error(Errc::not_found, "there is no volume '" + name + "'");
  return *std::move(found);
}

api::VolumeView VolumePlugin::view(const Volume& volume) const {
  const std::vector<Mount> mounts = store_.mounts_of(volume.name);
  return {.name = volume.name,
          .mountpoint = mounts.empty() ? "" : mounts.back().path,
          .created = {.seconds = volume.created_s, .nanoseconds = 0}};
}

std::string VolumePlugin::create(const VolumeRequest& request) {
  if (request.name.empty() || request.name.size() > kLongestName) {
    throw Error(Errc::bad_request, "a volume's name has 1 to " + std::to_string(kLongestName) + " bytes");
  }
  session::check_audit_value(request.name, "the volume's name");
  const auto held = stopping_.lock();
  if (const std::optional<Volume> known = store_.find(request.name)) {
    if (known->options == request.options) return api::volume_done_json();
    throw Error(Errc::exists, "there is a volume '" + request.name + "' with other options; remove that one first, or "
                              "choose another name");
  }
  sessions_.check(read_volume_options(request.options));
  store_.add({.name = request.name, .options = request.options, .created_s = now_ns() / 1'000'000'000});
  return api::volume_done_json();
}

std::string VolumePlugin::get(const VolumeRequest& request) { return api::volume_json(view(require(request.name))); }

std::string VolumePlugin::list(const VolumeRequest&) {
  std::vector<api::VolumeView> views;
  for (const Volume& volume : store_.list()) views.push_back(view(volume));
  return api::volumes_json(views);
}

std::string VolumePlugin::path(const VolumeRequest& request) {
  return api::volume_mountpoint_json(view(require(request.name)).mountpoint);
}

std::string VolumePlugin::remove(const VolumeRequest& request) {
  require(request.name);
  const auto held = stopping_.lock();
  const std::vector<Mount> mounts = store_.mounts_of(request.name);
  if (!mounts.empty()) {
    const std::string& container = mounts.front().container;
    throw Error(Errc::busy, "the volume '" + request.name + "' is in use by " +
                                (container.empty() ? std::string("a container") : "the container " + container) +
                                " (session " + mounts.front().session.text() + "); wait for its end");
  }
  store_.remove(request.name);
  return api::volume_done_json();
}

std::optional<VolumePlugin::Mount> VolumePlugin::find(const session::SessionId& session) const {
  for (Mount& mount : store_.mounts()) {
    if (mount.session == session) return std::move(mount);
  }
  return std::nullopt;
}

// As long as it is not known whose the newest mount of a volume is, nobody gets another: the runtime's next word about
// that volume then can only mean that one. What a runtime asks for again is what it had: it heard no answer, or it is
// `docker cp`, which uses a running container's mount under its id.
VolumePlugin::Mount VolumePlugin::claim(const Volume& volume, const std::string& repository,
                                        const std::string& mount_id, bool& is_new) {
  const auto deadline = steady_clock::now() + kClaimPatience;
  watch_.begin();
  while (true) {
    watch_.catch_up();
    auto stopping = stopping_.lock();
    std::optional<Mount> unnamed;
    for (Mount& mount : store_.mounts_of(volume.name)) {
      const bool is_same = mount.mount_id == mount_id && mount.ending == Reason::none && sessions_.is_hosted(mount);
      if (is_same && (is_unnamed(mount) || watch_.has_exact_ids(mount.runtime))) {
        is_new = false;
        if (!is_unnamed(mount)) watch_.change(mount.session, [](Mount& noted) { ++noted.uses; });
        return mount;
      }
      if (is_unnamed(mount)) unnamed = std::move(mount);
    }
    is_new = !unnamed;
    if (!unnamed) {
      Mount mount{.session = session::SessionId::generate()};
      mount.volume = volume.name;
      mount.repository = repository;
      mount.mount_id = mount_id;
      mount.path = sessions_.path_of(mount.session);
      mount.created_ns = now_ns();
      store_.put(mount);
      changed_.notify_all();
      return mount;
    }
    if (*stopping || steady_clock::now() > deadline) {
      throw Error(Errc::busy, "the volume '" + volume.name + "' was just given to another container, and its runtime "
                              "has not said to which; try again");
    }
    changed_.wait_for(stopping.lock(), kVolumePause);
  }
}

void VolumePlugin::release(const session::SessionId& session) {
  const auto held = stopping_.lock();
  store_.forget(session);
  changed_.notify_all();
}

std::string VolumePlugin::mount(const VolumeRequest& request) {
  const Volume volume = require(request.name);
  const VolumeOptions options = read_volume_options(volume.options);
  watch_.require_runtime();
  bool is_new = false;
  const Mount mount = claim(volume, options.repository, request.mount_id, is_new);
  try {
    if (is_new) sessions_.open(mount, options);
  } catch (...) {
    release(mount.session);
    throw;
  }
  return api::volume_mountpoint_json(mount.path);
}

// The runtime waits: what it does next, and who waits for the container, finds the session decided.
std::string VolumePlugin::unmount(const VolumeRequest& request) {
  require(request.name);
  std::vector<Mount> given_back;
  for (Mount& mount : store_.mounts_of(request.name)) {
    if (mount.mount_id == request.mount_id) given_back.push_back(std::move(mount));
  }
  for (const Mount& before : given_back) {
    bool is_in_use = false;
    watch_.change(before.session, [&](Mount& mount) {
      is_in_use = mount.uses > 1;
      if (is_in_use) --mount.uses;
    });
    if (is_in_use) continue;
    for (const auto deadline = steady_clock::now() + kVerdictPatience; steady_clock::now() < deadline;) {
      watch_.catch_up();
      std::optional<Mount> mount = find(before.session);
      if (!mount) break;
      // Nothing ran with it: docker has copied what the image has there, or no container could be started.
      if (watch_.knows_all(mount->created_ns)) {
        watch_.change(mount->session, [&](Mount& noted) {
          const bool is_unused = !noted.was_started && !noted.has_gap && noted.ending == Reason::none;
          if (is_unused) end_without_verdict(Reason::not_started, false, noted);
          mount = noted;
        });
      }
      if (mount->ending != Reason::none) {
        sessions_.end(*mount);
        break;
      }
      std::this_thread::sleep_for(kVolumePause);
    }
    // What is still not known, the watcher finds out.
    watch_.change(before.session, [](Mount& mount) { mount.is_unmounted = true; });
    changed_.notify_all();
  }
  return api::volume_done_json();
}

// ---- The watcher.

bool VolumePlugin::goes_on_after(std::chrono::milliseconds pause) {
  auto stopping = stopping_.lock();
  if (pause > 0ms) changed_.wait_for(stopping.lock(), pause);
  return !*stopping;
}

// A runtime does not keep its events for as long as the watcher may have to wait for a commit.
void VolumePlugin::hear_until_stopped() {
  std::chrono::milliseconds pause{0};
  while (goes_on_after(pause)) {
    pause = kPluginIdle;
    try {
      if (!store_.mounts().empty()) pause = kLookAtVolumesEvery;
      watch_.catch_up();
    } catch (const Error& error) {
      log_.write(LogLevel::warning, std::string("asking what containers do: ") + error.what());
    }
  }
}

void VolumePlugin::watch_until_stopped() {
  std::chrono::milliseconds pause{0};
  while (goes_on_after(pause)) {
    pause = kPluginIdle;
    try {
      watch_.catch_up();
      while (watch_.meet_strangers()) watch_.catch_up();
      watch_.ask_for_events();
      const std::vector<Mount> mounts = store_.mounts();
      const auto is_gone = [&](const auto& noted) {
        return std::none_of(mounts.begin(), mounts.end(), [&](const Mount& it) { return it.session == noted.first; });
      };
      std::erase_if(lost_since_, is_gone);
      std::erase_if(looked_at_, is_gone);
      for (const Mount& mount : mounts) {
        pause = std::min<std::chrono::milliseconds>(pause, is_unnamed(mount) ? kNameEvery : kLookAtVolumesEvery);
        look_after(mount);
      }
    } catch (const Error& error) {
      log_.write(LogLevel::warning, std::string("looking after volumes: ") + error.what());
    }
  }
}

// Of a container that is not told of, the runtime is asked now and then what it is doing.
void VolumePlugin::look_after(const Mount& mount) {
  if (mount.ending != Reason::none) {
    sessions_.end(mount);
    return;
  }
  const auto now = steady_clock::now();
  const auto looked_at = looked_at_.find(mount.session);
  const bool is_suspect = mount.is_unmounted || lost_since_.contains(mount.session);
  if (!is_suspect && looked_at != looked_at_.end() && now - looked_at->second < kLookAtRunningEvery) return;
  looked_at_[mount.session] = now;
  using Presence = ContainerWatch::Presence;
  const ContainerWatch::Found found =
      mount.container.empty() ? ContainerWatch::Found{.presence = Presence::gone} : watch_.look(mount);
  if (found.presence == Presence::running) lost_since_.erase(mount.session);
  if (found.presence == Presence::running || found.presence == Presence::unknown) return;
  const auto since = lost_since_.try_emplace(mount.session, now).first->second;
  std::chrono::milliseconds patience(config_.volume_plugin->lost_after_ms);
  if (is_unnamed(mount) && !mount.is_unmounted) patience += kUnnamedPatience;
  if (now - since < patience) return;
  if (!found.exit_code) {
    log_.write(LogLevel::warning, "session " + mount.session.text() + " of the volume " + mount.volume +
                                      " is rolled back: nobody knows how its container ended; its result is kept");
  }
  watch_.change(mount.session, [&](Mount& noted) {
    if (noted.ending != Reason::none) return;
    if (found.exit_code) end_as_found(found.exit_code, found.ran_out_of_memory, noted);
    else end_without_verdict(Reason::host_lost, true, noted);
  });
  if (const std::optional<Mount> decided = find(mount.session)) sessions_.end(*decided);
}

}  // namespace escrow::daemon
