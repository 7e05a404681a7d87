// The route of escrowd's API that commits archives and directories of the machine, as api/openapi.yaml describes it.
#pragma once

#include "daemon/service/http/service_routes.h"

namespace escrow::daemon {

// The parts must outlive the router.
void add_import_routes(api::Router& router, const ServiceParts& parts);

}  // namespace escrow::daemon
