#include "daemon/service/grants.h"

#include <algorithm>

#include "api/problem.h"
#include "session/base/glob.h"

namespace escrow::daemon {

namespace {

// Who may commit may open, and who may do anything may read.
bool implies(GrantedVerb granted, GrantedVerb verb) {
  return granted == verb || verb == GrantedVerb::read ||
         (granted == GrantedVerb::commit && verb == GrantedVerb::open);
}

bool is_of_branch(const Grant& grant, const std::string& branch) {
  const auto fits = [&](const std::string& glob) { return session::glob_match(glob, branch); };
  return !grant.branches || std::ranges::any_of(*grant.branches, fits);
}

template <typename Fits>
bool any_grant(const EscrowdConfig& config, const Caller& caller, const std::string& repository, Fits fits) {
  if (!config.grants || caller.is_operator) return true;
  for (const std::string& principal : {caller.principal, std::string(kEverybody)}) {
    const auto found = config.grants->find(principal);
    if (found == config.grants->end()) continue;
    for (const Grant& grant : found->second) {
      if ((grant.repository == kEverybody || grant.repository == repository) && fits(grant)) return true;
    }
  }
  return false;
}

}  // namespace

bool is_granted(const EscrowdConfig& config, const Caller& caller, GrantedVerb verb, const std::string& repository,
                const std::string& branch, const session::RepoPath& path) {
  return any_grant(config, caller, repository, [&](const Grant& grant) {
    const bool has_verb =
        std::ranges::any_of(grant.verbs, [&](GrantedVerb granted) { return implies(granted, verb); });
    return has_verb && is_of_branch(grant, branch) && grant.prefix.contains(path);
  });
}

bool may_see_repository(const EscrowdConfig& config, const Caller& caller, const std::string& repository) {
  return any_grant(config, caller, repository, [](const Grant& grant) { return !grant.verbs.empty(); });
}

bool sees_all_of(const EscrowdConfig& config, const Caller& caller, const std::string& repository) {
  return any_grant(config, caller, repository, [](const Grant& grant) {
    return !grant.verbs.empty() && !grant.branches && grant.prefix.is_root();
  });
}

bool may_see_branch(const EscrowdConfig& config, const Caller& caller, const std::string& repository,
                    const std::string& branch) {
  return any_grant(config, caller, repository,
                   [&](const Grant& grant) { return !grant.verbs.empty() && is_of_branch(grant, branch); });
}

void check_repository(const EscrowdConfig& config, const Caller& caller, const std::string& repository) {
  if (may_see_repository(config, caller, repository)) return;
  throw api::Problem(api::ProblemCode::no_repository, "there is no repository '" + repository +
                                                          "'; \"repositories\" of the service's configuration "
                                                          "registers one, and so may its operators (POST "
                                                          "/v1/repositories)");
}

}  // namespace escrow::daemon
