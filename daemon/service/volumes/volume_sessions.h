// The session of a volume's mount, from its opening to its end. It has a host process of its own, as a run has: neither
// a restart of escrowd nor its death disturbs the container. When the host dies, recovery rolls the session back and
// keeps its result. Thread-safe.
#pragma once

#include <condition_variable>
#include <set>
#include <string>

#include "daemon/service/runs/run_host.h"
#include "daemon/service/sessions/service_sessions.h"
#include "daemon/service/volumes/volume_options.h"
#include "session/base/log.h"
#include "storage/database/volume_store.h"

namespace escrow::daemon {

class VolumeSessions {
 public:
  // All must outlive this.
  VolumeSessions(const EscrowdConfig& config, ServiceRepositories& repositories, ServiceSessions& sessions,
                 storage::ServiceStore& facts, storage::VolumeStore& store, session::Log& log);

  // Checks what a volume is created with, beyond its options' form: its repository, its branch, its grants.
  void check(const VolumeOptions& options);
  // Where the session `id` will be mounted.
  std::string path_of(const session::SessionId& id) const;
  // Opens and mounts the session of a mount that is noted. Throws Error, and then nothing of it is left.
  void open(const storage::VolumeStore::Mount& mount, const VolumeOptions& options);
  // Whether its host lives.
  bool is_hosted(const storage::VolumeStore::Mount& mount);
  // As `mount.ending` says, unless somebody has ended the session before; then the mount is forgotten. Waits for
  // another thread that does the same. Of a session that no container had nothing stays, not even its record. What
  // cannot be done now is logged, and to be tried again: false.
  bool end(const storage::VolumeStore::Mount& mount);
  void reap() noexcept { hosts_.reap(); }

 private:
  class SessionTryLock;
  void finish(const storage::VolumeStore::Mount& mount);
  void warn_of_end(const storage::VolumeStore::Mount& mount, RepositoryContext& context);
  void forget_unused(const storage::VolumeStore::Mount& mount);
  void forget(const storage::VolumeStore::Mount& mount);

  const EscrowdConfig& config_;  // constant references; self-locking
  ServiceRepositories& repositories_;
  ServiceSessions& sessions_;
  storage::ServiceStore& facts_;
  storage::VolumeStore& store_;
  session::Log& log_;
  const std::string directory_;
  RunHosts hosts_;
  session::Synchronized<std::set<session::SessionId>> ending_;  // self-locking
  std::condition_variable ended_;                              // with `ending_`
};

}  // namespace escrow::daemon
