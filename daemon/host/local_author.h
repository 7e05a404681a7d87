// Who the commits of a session that is opened on this machine, and not over a service, are by.
// Pure but for reading the environment and git's configuration.
#pragma once

#include <string>

#include "daemon/host/session_request.h"
#include "session/interfaces/session_record.h"

namespace escrow::daemon {

// The author that git has for this user (git_identity.h), unless the request names a committer; the principal stays in
// the trailers. Where git has none the principal is the author.
void set_local_author(session::SessionOptions& options, const SessionRequest& request, const std::string& repository);

}  // namespace escrow::daemon
