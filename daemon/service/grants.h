// What the configuration's `grants` let a principal do, and where. Pure; without any grants nobody is restricted, and
// an operator never is.
#pragma once

#include <string>

#include "daemon/service/caller.h"
#include "session/base/repo_path.h"

namespace escrow::daemon {

// Whether the caller may do it with the branch, at the path and below it.
bool is_granted(const EscrowdConfig& config, const Caller& caller, GrantedVerb verb, const std::string& repository,
                const std::string& branch, const session::RepoPath& path);
// Whether there is anything in it that the caller may read.
bool may_see_repository(const EscrowdConfig& config, const Caller& caller, const std::string& repository);
bool may_see_branch(const EscrowdConfig& config, const Caller& caller, const std::string& repository,
                    const std::string& branch);
// Whether the caller may read every path of every branch.
bool sees_all_of(const EscrowdConfig& config, const Caller& caller, const std::string& repository);

// Throws Problem{no_repository} for one that the caller may not see, as for one that does not exist.
void check_repository(const EscrowdConfig& config, const Caller& caller, const std::string& repository);

}  // namespace escrow::daemon
