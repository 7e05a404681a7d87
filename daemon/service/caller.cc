#include "daemon/service/caller.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "api/bearer_token.h"
#include "api/problem.h"
#include "daemon/host/config.h"

namespace escrow::daemon {

bool has_principal(const std::vector<std::string>& principals, const std::string& principal) {
  return std::find(principals.begin(), principals.end(), principal) != principals.end();
}

namespace {

// Of a local peer.
bool is_operator(const EscrowdConfig& config, const Caller& caller) {
  const bool is_named = has_principal(config.operators, caller.principal);
  if (caller.uid == 0) return is_named && caller.has_our_rights;
  return is_named || (caller.uid == ::geteuid() && caller.has_our_rights);
}

}  // namespace

Account account_of(const EscrowdConfig& config, const std::string& principal) {
  static constexpr std::string_view kUser = "user:";
  const auto given = config.accounts.find(principal);
  const std::string& name = given == config.accounts.end() ? principal : given->second;
  if (!name.starts_with(kUser)) return {};
  std::array<char, 16384> buffer;
  passwd entry{};
  passwd* found = nullptr;
  ::getpwnam_r(name.substr(kUser.size()).c_str(), &entry, buffer.data(), buffer.size(), &found);
  return found == nullptr ? Account() : Account{.uid = found->pw_uid, .gid = found->pw_gid};
}

std::string principal_of_token(const LiveConfig& live, std::string_view token) {
  const std::shared_ptr<const EscrowdConfig> config = live.now();
  const std::string hash = api::hash_token(token);
  std::string found;
  for (const auto& [principal, hashes] : config->tokens) {
    for (const std::string& known : hashes) {
      if (api::is_same_hash(known, hash)) found = principal;
    }
  }
  return found;
}

Caller caller_of(const LiveConfig& live, const api::HttpRequest& request) {
  const std::shared_ptr<const EscrowdConfig> config = live.now();
  const api::LocalPeer& peer = request.peer;
  Caller caller{.principal = request.principal, .uid = peer.uid, .gid = peer.gid};
  if (caller.principal.empty()) {
    caller.principal = principal_of(caller.uid);
    caller.groups = peer.groups;
    caller.has_our_rights = peer.has_our_rights;
    caller.is_operator = is_operator(*config, caller);
  } else {
    const Account account = account_of(*config, caller.principal);
    caller.uid = account.uid;
    caller.gid = account.gid;
    caller.has_our_rights = caller.is_operator = has_principal(config->operators, caller.principal);
  }
  caller.is_reviewer = has_principal(config->reviewers, caller.principal);
  return caller;
}

void check_operator(const LiveConfig& config, const Caller& caller, const std::string& verb) {
  if (caller.is_operator) return;
  std::string why = caller.principal + " is no operator; only operators " + verb + " repositories";
  if (has_principal(config->operators, caller.principal)) {
    why += ", and " + caller.principal + " is one only with the capabilities of this service and in its PID and user "
           "namespaces; ask from there";
  } else if (caller.uid == 0) {
    why += "; where root is to be one, the configuration has \"operators\": [\"" + caller.principal + "\"]";
  }
  throw api::Problem(api::ProblemCode::forbidden, why);
}

bool is_granted(const EscrowdConfig& config, const std::string& principal, const std::string& committer) {
  const auto granted = config.run_as.find(principal);
  return granted != config.run_as.end() && has_principal(granted->second, committer);
}

bool may_run_as(const LiveConfig& config, const Caller& caller, const std::string& committer) {
  return committer == caller.principal || caller.is_operator || is_granted(*config.now(), caller.principal, committer);
}

}  // namespace escrow::daemon
