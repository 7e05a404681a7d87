// The sessions that escrowd has mounted, each in a host process of its own (mount_host.h), and the way to them: what a
// session is asked goes to the control socket of its host. Thread-safe.
//
// A host outlives escrowd: the next one finds it by where the store says that the session is mounted. A session whose
// host is gone though nobody ended or unmounted it is mounted anew. It is forgotten when it has ended or its mount has
// gone away, whoever did it: a request here, a command on its control socket, umount(8).
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "api/protocol.h"
#include "daemon/host/hidden_git.h"
#include "daemon/process/file_descriptor.h"
#include "daemon/service/service_repositories.h"
#include "daemon/service/sessions/host_pool.h"
#include "session/base/log.h"
#include "session/base/synchronized.h"
#include "storage/database/service_store.h"

namespace escrow::daemon {

struct MountOrder;

class SessionHosts {
 public:
  // All must outlive this.
  SessionHosts(const EscrowdConfig& config, storage::ServiceStore& store, const AllowedRoots& mount_roots,
               session::Log& log);
  // Where this process is the first of a container, which ends with it, the hosts are asked to leave, and waited for.
  ~SessionHosts();

  struct Mounted {
    std::string mountpoint;
    std::optional<api::IoView> io;  // nullopt: its host did not answer
  };
  // nullopt: the session is not mounted by this service.
  std::optional<Mounted> find(const session::SessionId& id);
  // Mounts an open session that nobody holds, and records that it is to be mounted there, for this viewer's hand
  // (empty: as before) and with these options (request_options.h; nullopt: as before). Throws api::Problem for a
  // mountpoint that is not allowed, Error for one that cannot be used.
  void mount(const ServiceRepositories::Entry& repository, const session::SessionId& id, const std::string& mountpoint,
             GitViewer viewer, const std::optional<std::string>& mount_options = std::nullopt);
  // It was unmounted on request: it is not to be mounted again.
  void forget(const session::SessionId& id);

  struct Traffic {
    std::uint64_t mounts = 0, staged_bytes = 0, cache_hits = 0, cache_misses = 0;   // the first two: now
    std::map<std::string, api::TrafficAnswer::Operation> operations;  // by kind, also of mounts that are gone
    void add(const api::TrafficAnswer& more);
  };
  Traffic traffic();
  // Finds the hosts of a service before this one, and mounts sessions without a host anew. A session that cannot be
  // mounted stays open and detached, and the log says why.
  void take_up(ServiceRepositories& repositories);
  // The store learns which sessions are not to be mounted any more: many at once, now and then, because a service that
  // dies before mounts an open one once more, and finds the others ended. A failure is logged.
  void tidy() noexcept;

 private:
  // A mountpoint that the service has made goes with the mount, unless it is to be mounted there again.
  class Mountpoint {
   public:
    Mountpoint(SessionHosts& sessions, std::string path) : sessions_(sessions), path_(std::move(path)) {}
    ~Mountpoint();
    Mountpoint(const Mountpoint&) = delete;
    Mountpoint& operator=(const Mountpoint&) = delete;
    const std::string& path() const noexcept { return path_; }
    void keep() noexcept { is_kept_ = true; }

   private:
    SessionHosts& sessions_;
    const std::string path_;
    bool is_kept_ = false;
  };
  class Mounting;
  struct Hosted {
    ServiceRepositories::Entry repository;
    Mountpoint mountpoint;
    std::optional<api::IoView> io;
    std::optional<HostProcess> process;  // nullopt: one that a service before this one started
    FileDescriptor life;                 // of such a one: pidfd_open(2); none: it is looked for now and then
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
    std::atomic<bool> is_met = false;    // it listens
    std::atomic<bool> is_forgotten = false;
    api::TrafficAnswer seen{};           // when its host was last asked
  };
  using Entry = std::pair<session::SessionId, std::shared_ptr<Hosted>>;

  HostProcess start(const ServiceRepositories::Entry& repository, const MountOrder& order, api::IoView& io);
  bool adopt(const ServiceRepositories::Entry& repository, const session::SessionId& id, const std::string& mountpoint);
  void meet(const Entry& entry);
  void take_up(ServiceRepositories& repositories, const storage::ServiceStore::SessionFacts& facts);
  void remove_made(const std::string& mountpoint) noexcept;
  void watch_until_stopped();
  void look_after(const Entry& entry);
  void gone(const Entry& entry, const api::TrafficAnswer& served);
  void mount_anew(const Entry& entry);
  std::vector<Entry> all();
  void ask_all_to_leave();

  const bool verbose_;            // constant
  storage::ServiceStore& store_;  // constant references, self-locking
  const AllowedRoots& mount_roots_;
  session::Log& log_;
  const FileDescriptor wake_;
  // Where something is about to be mounted; held while a directory that the service has made is removed.
  session::Synchronized<std::multiset<std::string>> mounting_;
  struct Shared {
    std::map<session::SessionId, std::shared_ptr<Hosted>> hosts;
    Traffic past;  // of mounts that are gone
    bool stopping = false;
  };
  session::Synchronized<Shared> shared_;  // self-locking
  // Still said to be mounted in the store; held while it is told, so that a mount that comes then is not forgotten.
  session::Synchronized<std::vector<session::SessionId>> unmounted_;
  HostPool pool_;  // self-locking
  std::thread watcher_;
};

}  // namespace escrow::daemon
