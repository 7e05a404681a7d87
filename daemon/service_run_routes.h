// The routes of escrowd's API on runs, as api/openapi.yaml lists them.
#pragma once

#include "api/router.h"
#include "daemon/escrowd_config.h"
#include "daemon/service_runs.h"
#include "session/clock.h"
#include "storage/service_store.h"

namespace escrow::daemon {

struct RunParts {
  const EscrowdConfig& config;
  ServiceRuns& runs;
  storage::ServiceStore& store;
  session::Clock& clock;
};

// The parts must outlive the router.
void add_run_routes(api::Router& router, const RunParts& parts);

}  // namespace escrow::daemon
