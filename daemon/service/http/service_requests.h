// The bodies and queries of escrowd's API that are not every session's (session_routes.h), read strictly. Pure
// functions; each throws api::Problem naming the field.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "api/router.h"
#include "daemon/service/runs/service_runs.h"
#include "daemon/service/service_tokens.h"
#include "daemon/service/sessions/service_sessions.h"

namespace escrow::daemon {

ServiceSessions::OpenRequest read_open_request(const api::HttpRequest& request);

// The terms of an import: in the query, with an archive as the body, or in the body, which then names a directory
// (service_import_requests.cc).
struct Importing {
  ServiceSessions::OpenRequest opening;
  std::string source;  // the directory; empty: the archive
};
Importing read_importing(api::Call& call);

ServiceSessions::Filter read_filter(api::Query& query);
ServiceRuns::RunRequest read_run_request(const api::HttpRequest& request);
ServiceRuns::Filter read_run_filter(api::Query& query);
ServiceSessions::FinishRequest read_finish_request(const api::HttpRequest& request);

struct Approving {
  std::string result, comment, message;
};
Approving read_approving(const api::HttpRequest& request);
// The comment.
std::string read_rejecting(const api::HttpRequest& request);

struct Registering {
  std::string name, path;
  bool create = false;  // when it is missing; then the path may be empty: where the service puts it
  std::string branch;   // of a new one; empty: the default
};
Registering read_registering(const api::HttpRequest& request);

ServiceSessions::Mounting read_mounting(const api::HttpRequest& request);
ServiceSessions::AuditWanted read_audit_wanted(api::Query& query);
// "committed,rolled_back". Throws Problem naming the one that is none.
std::set<session::State> read_states(const std::string& text);

// As api::read_commit(), with a message of a bounded size.
api::CommitRequest read_commit_request(const api::HttpRequest& request);
// 0: as long as before.
std::uint64_t read_lease(const api::HttpRequest& request);
// With a key it names the hash: an answer that has a token in it is not kept.
ServiceTokens::Wanted read_token_request(const api::HttpRequest& request);
ServiceTokens::Filter read_token_filter(api::Query& query);

}  // namespace escrow::daemon
