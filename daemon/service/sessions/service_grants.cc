// The part of ServiceSessions that holds callers to their grants (daemon/service/grants.h).
#include "api/problem.h"
#include "daemon/host/kept_mounts.h"
#include "daemon/service/grants.h"
#include "daemon/service/imports/caller_files.h"
#include "daemon/service/sessions/service_sessions.h"
#include "session/base/path_prefix.h"

namespace escrow::daemon {

using api::Problem;
using api::ProblemCode;

bool ServiceSessions::may(const Caller& caller, GrantedVerb verb, const Found& found) const {
  const session::SessionOptions& options = found.record.options;
  return is_granted(*config_.now(), caller, verb, found.repository.name, options.branch, options.prefix);
}

bool ServiceSessions::may_see(const Caller& caller, const Found& found) const {
  return caller.may_see(found.record) && may(caller, GrantedVerb::read, found);
}

void ServiceSessions::check_grant(const Caller& caller, const OpenRequest& opening, bool commits) const {
  const std::shared_ptr<const EscrowdConfig> config = config_.now();
  if (!config->grants || caller.is_operator) return;
  check_repository(*config, caller, opening.repository);
  const SessionRequest& request = opening.session;
  const session::RepoPath prefix = session::parse_path_prefix(request.path_prefix, "path_prefix");
  if (!request.git.empty() && request.git != "off" && !sees_all_of(*config, caller, opening.repository)) {
    throw Problem(ProblemCode::forbidden, caller.principal + " may not read all of the repository " +
                                              opening.repository + " (grants), and git's objects would show it",
                  {{"field", "git"}});
  }
  const std::string branch =
      request.branch.empty()
          ? repositories_.find(opening.repository).context->repository().references().default_branch()
          : request.branch;
  // What a reviewer is asked about the reviewer commits.
  const bool is_reviewed = request.read_only || request.require_approval;
  const GrantedVerb verb = commits && !is_reviewed ? GrantedVerb::commit : GrantedVerb::open;
  if (is_granted(*config, caller, verb, opening.repository, branch, prefix)) return;
  const bool is_commit = verb == GrantedVerb::commit;
  const std::string what = is_commit ? " has no grant to commit to" : " has no grant to open sessions on";
  const std::string where = " the branch " + branch + (prefix.is_root() ? "" : " below " + prefix.text());
  throw Problem(ProblemCode::forbidden, caller.principal + what + where + " (grants)", {{"field", "branch"}});
}

void ServiceSessions::check_commit(const Caller& caller, const Found& found) const {
  const session::SessionOptions& options = found.record.options;
  if (options.read_only || options.require_approval || may(caller, GrantedVerb::commit, found)) return;
  throw Problem(ProblemCode::forbidden, caller.principal + " has no grant to commit to the branch " + options.branch +
                                            " (grants); the session can be rolled back");
}

void ServiceSessions::check_mounts(const Caller& caller, const std::string& repository, SessionRequest& request) const {
  request.mount_rights.clear();
  const auto refuse = [](const std::string& why) {
    throw Problem(ProblemCode::forbidden, why, {{"field", "mounts"}});
  };
  for (const MountEntrySpec& spec : request.mounts.specs) {
    const std::string at = "the entry " + session::quote_path(spec.path.text());
    // A cache has what sessions on every branch have left in it.
    if (spec.source == MountEntrySpec::Source::cache && config_.now()->grants && !caller.is_operator)
      refuse(at + " is a cache, which all branches of the repository share; where there are grants, only operators may "
                  "have one");
    const bool is_foreign = spec.source == MountEntrySpec::Source::revision && config_.now()->grants;
    if (is_foreign && !is_granted(*config_.now(), caller, GrantedVerb::read, repository, spec.revision, spec.prefix))
      refuse(at + " is of '" + spec.revision + "', and " + caller.principal + " has no grant to read it there");
    if (spec.directory.empty()) continue;
    if (spec.is_volatile() && !spec.read_only && !caller.is_operator)
      refuse(at + " is a host directory that can be written to; only operators may have one; mode=overlay is a copy");
    const CallerFiles checked(source_roots_, caller, spec.directory, "mounts");
    if (!reads_as_we_do(caller)) request.mount_rights = text_of_rights(identity_of(caller));
  }
}

}  // namespace escrow::daemon
