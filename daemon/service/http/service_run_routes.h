// The routes of escrowd's API on runs, as api/openapi.yaml lists them.
#pragma once

#include "api/router.h"
#include "daemon/service/escrowd_config.h"
#include "daemon/service/runs/service_runs.h"
#include "storage/database/service_store.h"

namespace escrow::daemon {

struct RunParts {
  const LiveConfig& config;
  ServiceRuns& runs;
  storage::ServiceStore& store;
  const ServiceTime& time;
};

// The parts must outlive the router.
void add_run_routes(api::Router& router, const RunParts& parts);

}  // namespace escrow::daemon
