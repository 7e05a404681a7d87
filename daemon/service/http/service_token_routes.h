// The routes of tokens: /v1/tokens.
#pragma once

#include "api/router.h"
#include "daemon/service/http/service_routes.h"

namespace escrow::daemon {

// The parts must outlive the router.
void add_token_routes(api::Router& router, const ServiceParts& parts);

}  // namespace escrow::daemon
