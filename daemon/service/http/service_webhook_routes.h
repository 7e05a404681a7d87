// The routes of webhooks: /v1/webhooks.
#pragma once

#include "api/router.h"
#include "daemon/service/http/service_routes.h"

namespace escrow::daemon {

// The parts must outlive the router.
void add_webhook_routes(api::Router& router, const ServiceParts& parts);

}  // namespace escrow::daemon
