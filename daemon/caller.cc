#include "daemon/caller.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "api/bearer_token.h"
#include "daemon/config.h"

namespace escrow::daemon {

namespace {

bool has(const std::vector<std::string>& principals, const std::string& principal) {
  return std::find(principals.begin(), principals.end(), principal) != principals.end();
}

// The user and group that files of a principal belong to.
void find_account(Caller& caller) {
  static constexpr std::string_view kUser = "user:";
  caller.uid = caller.gid = kOverflowId;
  if (!caller.principal.starts_with(kUser)) return;
  std::array<char, 16384> buffer;
  passwd entry{};
  passwd* found = nullptr;
  const std::string name = caller.principal.substr(kUser.size());
  ::getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found == nullptr) return;
  caller.uid = found->pw_uid;
  caller.gid = found->pw_gid;
}

}  // namespace

std::string principal_of_token(const EscrowdConfig& config, std::string_view token) {
  const std::string hash = api::hash_token(token);
  std::string found;
  for (const auto& [principal, hashes] : config.tokens) {
    for (const std::string& known : hashes) {
      if (api::is_same_hash(known, hash)) found = principal;
    }
  }
  return found;
}

Caller caller_of(const EscrowdConfig& config, const api::HttpRequest& request) {
  Caller caller{.principal = request.principal, .uid = request.uid, .gid = request.gid};
  if (caller.principal.empty()) {
    caller.principal = principal_of(caller.uid);
    caller.groups = request.groups;
  } else {
    find_account(caller);
  }
  caller.is_operator = caller.principal == principal_of(::geteuid()) || has(config.operators, caller.principal);
  caller.is_reviewer = has(config.reviewers, caller.principal);
  return caller;
}

bool may_run_as(const EscrowdConfig& config, const Caller& caller, const std::string& committer) {
  if (committer == caller.principal || caller.is_operator) return true;
  const auto granted = config.run_as.find(caller.principal);
  return granted != config.run_as.end() && has(granted->second, committer);
}

}  // namespace escrow::daemon
