// The options of a command that opens a session, as an escrowd takes them (--host).
#pragma once

#include <string>
#include <vector>

#include "api/json_document.h"
#include "daemon/session_arguments.h"

namespace escrow::daemon {

// What POST /v1/sessions and POST /v1/runs have in common. Reads the policy. Throws Error{bad_request}.
api::JsonObject remote_opening(const std::string& repository, const SessionArguments& arguments);

// Throws Error{bad_request} naming them, when there are any: `given` are those that a service has no word for.
void refuse_options_of_this_machine(const std::vector<std::string>& given);

}  // namespace escrow::daemon
