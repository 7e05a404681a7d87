// Container volumes: the Docker volume plugin protocol, on a Unix socket of its own, and the watcher that decides by
// how the containers end.
//
// Each time a container gets a volume a session is opened for it, and the container's exit status decides it as it
// decides a run. A runtime does not say for whom it asks; its events do, right afterwards. Until then nobody else gets
// that volume, so no session is shared by accident. Volumes and mounts are in the store: a restart forgets nothing.
// Whoever may open the socket (0660, the group of the process) acts as the service's own user. Thread-safe.
// Sources: docs.docker.com/engine/extend/plugins_volume; podman-volume-create(1).
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "api/http_server.h"
#include "api/router.h"
#include "api/volume_protocol.h"
#include "daemon/service/async_requests.h"
#include "daemon/service/volumes/container_watch.h"
#include "daemon/service/volumes/volume_sessions.h"
#include "storage/database/volume_store.h"

namespace escrow::daemon {

class VolumePlugin {
 public:
  // Serves from here on, with the configuration of the start; decides first what ended while no service was there. All
  // must outlive this.
  VolumePlugin(const EscrowdConfig& config, const LiveConfig& live, ServiceRepositories& repositories,
               ServiceSessions& sessions, storage::ServiceStore& facts, session::Log& log);
  // Sessions go on in their host processes.
  ~VolumePlugin();

  void reap() noexcept { sessions_.reap(); }

 private:
  using Mount = storage::VolumeStore::Mount;
  using Verb = std::string (VolumePlugin::*)(const api::VolumeRequest&);

  void stop();
  void add_routes();
  // Each answers with a document of the protocol.
  std::string create(const api::VolumeRequest& request);
  std::string get(const api::VolumeRequest& request);
  std::string list(const api::VolumeRequest& request);
  std::string path(const api::VolumeRequest& request);
  std::string remove(const api::VolumeRequest& request);
  std::string mount(const api::VolumeRequest& request);
  std::string unmount(const api::VolumeRequest& request);

  storage::VolumeStore::Volume require(const std::string& name) const;
  api::VolumeView view(const storage::VolumeStore::Volume& volume) const;
  std::optional<Mount> find(const session::SessionId& session) const;
  Mount claim(const storage::VolumeStore::Volume& volume, const std::string& repository, const std::string& mount_id,
              bool& is_new);
  void release(const session::SessionId& session);
  void forget_unused();
  // The pause ends early when there is a new mount. False: the plugin stops.
  bool goes_on_after(std::chrono::milliseconds pause);
  void hear_until_stopped();
  void watch_until_stopped();
  void look_after(const Mount& mount);

  const EscrowdConfig& config_;  // constant references; self-locking, as what follows
  session::Log& log_;
  storage::VolumeStore store_;
  VolumeSessions sessions_;
  ContainerWatch watch_;
  std::map<session::SessionId, std::chrono::steady_clock::time_point> lost_since_, looked_at_;  // of the watcher alone
  session::Synchronized<bool> stopping_;  // held while a mount is claimed
  std::condition_variable changed_;       // with stopping_: it is true, or there is a new mount
  AsyncRequests long_verbs_;                  // self-locking
  std::thread listener_, watcher_;
  api::Router router_;
  std::unique_ptr<api::HttpServer> server_;
};

}  // namespace escrow::daemon
