// The routes of escrowd's API, as api/openapi.yaml lists them: from requests to repositories and sessions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "api/router.h"
#include "daemon/process/shutdown_deadline.h"
#include "daemon/service/async_requests.h"
#include "daemon/service/escrowd_config.h"
#include "daemon/service/service_repositories.h"
#include "daemon/service/service_tokens.h"
#include "daemon/service/sessions/service_events.h"
#include "daemon/service/sessions/service_sessions.h"
#include "daemon/service/webhooks.h"
#include "storage/database/service_store.h"

namespace escrow::daemon {

struct ServiceParts {
  const LiveConfig& config;
  ServiceRepositories& repositories;
  ServiceSessions& sessions;
  storage::ServiceStore& store;
  const ServiceTime& time;
  ServiceEvents& events;
  ServiceTokens& tokens;
  Webhooks& webhooks;
  AsyncRequests& long_verbs;
  const AllowedRoots& source_roots;
  const ShutdownDeadline& stopping;
  // Reads the configuration again; the names of members that count from the next start on.
  std::function<std::vector<std::string>()> reload;
};

// 202 with the session that the request is about, for whoever does not wait for the verb.
api::HttpResponse accepted(const LiveConfig& config, ServiceSessions& sessions, const api::Call& call) noexcept;

// The parts must outlive the router.
void add_service_routes(api::Router& router, const ServiceParts& parts);

}  // namespace escrow::daemon
