// The routes of escrowd's API, as api/openapi.yaml lists them: from requests to repositories and sessions.
#pragma once

#include "api/router.h"
#include "daemon/escrowd_config.h"
#include "daemon/long_verbs.h"
#include "daemon/service_events.h"
#include "daemon/service_repositories.h"
#include "daemon/service_sessions.h"
#include "daemon/stopping.h"
#include "session/clock.h"
#include "storage/service_store.h"

namespace escrow::daemon {

struct ServiceParts {
  const EscrowdConfig& config;
  ServiceRepositories& repositories;
  ServiceSessions& sessions;
  storage::ServiceStore& store;
  session::Clock& clock;
  ServiceEvents& events;
  LongVerbs& long_verbs;
  const AllowedRoots& source_roots;
  const Stopping& stopping;
};

// 202 with the session that the request is about, for whoever does not wait for the verb.
api::HttpResponse accepted(const EscrowdConfig& config, ServiceSessions& sessions, const api::Call& call) noexcept;

// The parts must outlive the router.
void add_service_routes(api::Router& router, const ServiceParts& parts);

}  // namespace escrow::daemon
