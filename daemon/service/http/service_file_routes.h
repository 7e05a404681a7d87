// GET, PUT and DELETE /v1/sessions/{session}/files/{path}, and GET /v1/sessions/{session}/entries: from requests to
// the files of a session.
#pragma once

#include "api/router.h"
#include "daemon/service/http/service_routes.h"

namespace escrow::daemon {

// The parts must outlive the router.
void add_file_routes(api::Router& router, const ServiceParts& parts);

}  // namespace escrow::daemon
