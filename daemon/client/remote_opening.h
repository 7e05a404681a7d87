// The options of a command that opens a session, as an escrowd takes them (--host), and why it takes some not at all.
#pragma once

#include <string>
#include <vector>

#include "api/json_document.h"
#include "daemon/host/mount_options.h"
#include "daemon/host/session_request.h"

namespace escrow::daemon {

// What POST /v1/sessions and POST /v1/runs have in common.
api::JsonObject remote_opening(const std::string& repository, const SessionRequest& request);
// Adds how its mount is to work, where something was asked for: what POST /v1/sessions/ID/mount takes, too.
void add_mount_options(api::JsonObject& body, const MountArguments& arguments);

// Throws Error{bad_request} that says of the first of these options why a service cannot have it.
void refuse_options_of_this_machine(const std::vector<std::string>& given);

}  // namespace escrow::daemon
