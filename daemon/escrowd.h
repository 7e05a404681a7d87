// escrowd: the service from its configuration to its end, one member after the other. One per process.
#pragma once

#include <string>

#include "api/http_server.h"
#include "api/metrics.h"
#include "api/router.h"
#include "daemon/allowed_roots.h"
#include "daemon/escrowd_config.h"
#include "daemon/file_descriptor.h"
#include "daemon/hosted_sessions.h"
#include "daemon/long_verbs.h"
#include "daemon/service_events.h"
#include "daemon/service_leases.h"
#include "daemon/service_repositories.h"
#include "daemon/service_runs.h"
#include "daemon/service_sessions.h"
#include "daemon/stopping.h"
#include "daemon/volume_plugin.h"
#include "session/clock.h"
#include "session/log.h"
#include "storage/event_log.h"
#include "storage/service_store.h"

namespace escrow::daemon {

class Escrowd {
 public:
  // Serves from here on; takes up the sessions that a service before this one had mounted. Throws Error.
  explicit Escrowd(const EscrowdConfig& config);
  // Drains: requests under way are answered, gc, verify and imports only for as long as the configuration's
  // stop_grace_ms; mounts are taken away, sessions stay open and detached. Runs go on.
  ~Escrowd();

  // Until SIGTERM or SIGINT; keeps the repositories tidy meanwhile.
  void run();

 private:
  void forget_old_requests();

  const EscrowdConfig config_;
  const int given_socket_;  // on which the service manager listens for it; -1: none
  std::unique_ptr<session::Log> log_;
  FileDescriptor signals_;  // blocked in every thread, read here
  AllowedRoots repository_roots_, mount_roots_, source_roots_;
  FileDescriptor state_lock_;  // held while the service lives
  storage::ServiceStore store_;
  storage::EventLog event_log_;
  session::SystemClock clock_;
  Stopping stopping_;
  ServiceRepositories repositories_;
  HostedSessions hosts_;
  api::Metrics metrics_;
  ServiceSessions sessions_;
  std::unique_ptr<ServiceEvents> events_;
  std::unique_ptr<ServiceLeases> leases_;
  std::unique_ptr<LongVerbs> long_verbs_;
  ServiceRuns runs_;
  api::Router router_;
  std::unique_ptr<api::HttpServer> server_;
  std::unique_ptr<VolumePlugin> volumes_;  // null: there is none
};

// The whole program: its exit status (exit_status.h).
int run_escrowd(int argc, char** argv);

}  // namespace escrow::daemon
