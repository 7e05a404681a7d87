// The routes of escrowd's API that look after a whole repository: audit, gc and verify, as api/openapi.yaml lists them.
#pragma once

#include "daemon/service/http/service_routes.h"

namespace escrow::daemon {

// The parts must outlive the router.
void add_upkeep_routes(api::Router& router, const ServiceParts& parts);

}  // namespace escrow::daemon
