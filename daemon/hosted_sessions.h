// The sessions that escrowd has mounted. Thread-safe.
//
// A host is let go of when its session has ended or its mount has gone away, whoever did it: a request here, a command
// on its control socket, umount(8). Destroying this takes every mount away and leaves the sessions open and detached;
// where they are to be mounted stays in the store, and the next service takes them up again.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/file_descriptor.h"
#include "daemon/service_repositories.h"
#include "daemon/session_host.h"
#include "session/log.h"
#include "session/synchronized.h"
#include "storage/service_store.h"

namespace escrow::daemon {

class HostedSessions {
 public:
  // All must outlive this.
  HostedSessions(storage::ServiceStore& store, const AllowedRoots& mount_roots, session::Log& log);
  ~HostedSessions();

  // Null when the session is not mounted by this service.
  std::shared_ptr<SessionHost> find(const session::SessionId& id);
  // Mounts the session, which is recorded to be mounted there from now on, with these options (session_terms.h; empty:
  // as before). Throws api::Problem for a mountpoint that is not allowed, Error for one that cannot be used.
  void mount(const ServiceRepositories::Entry& repository, std::unique_ptr<session::Session> session,
             const std::string& mountpoint, const std::string& mount_options = {});
  struct Traffic {
    std::uint64_t mounts = 0, staged_bytes = 0;                // now
    std::map<std::string, fuse::OperationCount> operations;  // by kind, also of mounts that are gone
  };
  Traffic traffic();
  // Mounts anew what a service before this one had mounted. What cannot be is logged, and stays open and detached.
  void take_up(ServiceRepositories& repositories);
  // The store learns which sessions are not to be mounted any more: many at once, now and then, because a service that
  // dies before mounts an open one once more, and finds the others ended. A failure is logged.
  void tidy() noexcept;
  // Takes the mount away; the session is held until the last request that uses it is answered.
  void let_go(const session::SessionId& id);
  // Until nobody here holds the session any more, at most 10 s.
  void wait_until_gone(const ServiceRepositories::Entry& repository, const session::SessionId& id);

 private:
  struct Hosted {
    std::shared_ptr<RepositoryContext> context;  // first: the host is destroyed before it
    std::unique_ptr<SessionHost> host;
  };
  void reap_until_stopped();

  storage::ServiceStore& store_;  // constant references, self-locking
  const AllowedRoots& mount_roots_;
  session::Log& log_;
  const FileDescriptor wake_;
  struct Shared {
    std::map<session::SessionId, std::shared_ptr<Hosted>> hosts;
    std::map<std::string, fuse::OperationCount> past;  // of mounts that are gone
    bool stopping = false;
  };
  session::Synchronized<Shared> shared_;  // self-locking
  // Still said to be mounted in the store; held while it is told, so that a mount that comes then is not forgotten.
  session::Synchronized<std::vector<session::SessionId>> unmounted_;
  std::thread reaper_;
};

}  // namespace escrow::daemon
