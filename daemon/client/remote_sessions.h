// The sessions of an escrowd, asked over HTTP (--host). session_source.h says what for; the service says who the caller
// is.
#pragma once

#include <memory>
#include <string>

#include "daemon/client/session_source.h"

namespace escrow::daemon {

// --host, else ESCROW_HOST; empty: this machine's own repositories.
std::string service_host(const GlobalOptions& options);

// The token comes from ESCROW_TOKEN. --repo, else ESCROW_REPO, is the name of a registered repository: only its
// sessions are listed, and its log is shown; without it all are listed, and the only repository there is logged.
// Throws Error{bad_request} for a host that cannot be one.
std::unique_ptr<SessionSource> remote_sessions(const std::string& host, const GlobalOptions& options);

}  // namespace escrow::daemon
