#include "daemon/caller.h"

#include <unistd.h>

#include <algorithm>

#include "daemon/config.h"

namespace escrow::daemon {

namespace {

bool has(const std::vector<std::string>& principals, const std::string& principal) {
  return std::find(principals.begin(), principals.end(), principal) != principals.end();
}

}  // namespace

Caller caller_of(const EscrowdConfig& config, unsigned uid, unsigned gid) {
  Caller caller{.principal = principal_of(uid), .uid = uid, .gid = gid};
  caller.is_operator = uid == ::geteuid() || has(config.operators, caller.principal);
  caller.is_reviewer = has(config.reviewers, caller.principal);
  return caller;
}

bool may_run_as(const EscrowdConfig& config, const Caller& caller, const std::string& committer) {
  if (committer == caller.principal || caller.is_operator) return true;
  const auto granted = config.run_as.find(caller.principal);
  return granted != config.run_as.end() && has(granted->second, committer);
}

}  // namespace escrow::daemon
