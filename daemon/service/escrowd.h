// escrowd: the service from its configuration to its end, one member after the other. One per process.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/http_server.h"
#include "api/metrics.h"
#include "api/router.h"
#include "daemon/import/allowed_roots.h"
#include "daemon/process/file_descriptor.h"
#include "daemon/process/shutdown_deadline.h"
#include "daemon/service/async_requests.h"
#include "daemon/service/escrowd_config.h"
#include "daemon/service/runs/service_runs.h"
#include "daemon/service/service_repositories.h"
#include "daemon/service/service_time.h"
#include "daemon/service/service_tokens.h"
#include "daemon/service/service_upkeep.h"
#include "daemon/service/sessions/service_events.h"
#include "daemon/service/sessions/service_leases.h"
#include "daemon/service/sessions/service_sessions.h"
#include "daemon/service/sessions/session_hosts.h"
#include "daemon/service/volumes/volume_plugin.h"
#include "daemon/service/webhooks.h"
#include "session/base/boot_clock.h"
#include "session/base/clock.h"
#include "session/base/log.h"
#include "session/base/synchronized.h"
#include "storage/database/event_log.h"
#include "storage/database/service_store.h"
#include "storage/database/token_store.h"
#include "storage/database/webhook_store.h"

namespace escrow::daemon {

class Escrowd {
 public:
  // Reads the configuration as it is now. Throws Error{bad_request}.
  using Reread = std::function<EscrowdConfig()>;
  // Serves from here on; takes up the sessions that a service before this one had mounted. Throws Error.
  Escrowd(const EscrowdConfig& config, Reread reread);
  // Drains: requests under way are answered. For gc, verify, imports and walks of a repository's directories that lasts
  // as long as the configuration's stop_grace_ms; mounts are taken away, sessions stay open and detached. Runs go on.
  ~Escrowd();

  // Until SIGTERM or SIGINT; keeps the repositories tidy meanwhile, and reads its configuration again at SIGHUP.
  void run();

 private:
  // The names of members that count from the next start on. Throws Error, and then changes nothing.
  std::vector<std::string> reload();
  void reload_for_a_signal() noexcept;
  bool is_told_to_stop(std::chrono::milliseconds within);
  void save_time() noexcept;
  void keep_house() noexcept;

  const EscrowdConfig started_with_;
  const Reread reread_;
  LiveConfig config_;
  struct Reload {};
  session::Synchronized<Reload> reloading_;  // held meanwhile
  bool is_stopping_ = false;                 // of the thread that runs
  const int given_socket_;  // on which the service manager listens for it; -1: none
  std::unique_ptr<session::Log> log_;
  FileDescriptor signals_;  // blocked in every thread, read here
  AllowedRoots repository_roots_, mount_roots_, source_roots_;
  FileDescriptor state_lock_;  // held while the service lives
  storage::ServiceStore store_;
  storage::EventLog event_log_;
  storage::TokenStore token_store_;
  storage::WebhookStore webhook_store_;
  session::SystemClock clock_;
  ServiceTokens tokens_;
  session::SystemBootClock boot_clock_;
  ServiceTime time_;
  ShutdownDeadline stopping_;
  ServiceRepositories repositories_;
  SessionHosts hosts_;
  api::Metrics metrics_;
  ServiceSessions sessions_;
  std::unique_ptr<ServiceEvents> events_;
  std::unique_ptr<Webhooks> webhooks_;
  std::unique_ptr<ServiceLeases> leases_;
  std::unique_ptr<AsyncRequests> long_verbs_;
  ServiceRuns runs_;
  api::Router router_;
  std::unique_ptr<api::HttpServer> server_;
  std::unique_ptr<VolumePlugin> volumes_;  // null: there is none
  std::unique_ptr<ServiceUpkeep> upkeep_;
};

// The whole program: its exit status (exit_status.h).
int run_escrowd(int argc, char** argv);

}  // namespace escrow::daemon
