#include "daemon/host/io_choice.h"

#include <memory>

#include "daemon/host/policy_files.h"
#include "session/base/error.h"

namespace escrow::daemon {

using fuse::Data;
using fuse::Opens;
using session::Action;

namespace {

[[noreturn]] void refuse_writeback(const std::string& with, const std::string& because) {
  throw session::Error(session::Errc::bad_request, "--io writeback cannot be had with " + with + ", because " +
                                                       because + "; leave --io out");
}

}  // namespace

PolicyNeeds needs_of_policies(const std::vector<std::string>& texts, const std::string& prefix) {
  const std::unique_ptr<session::AccessPolicy> policy = compile_policies(texts);
  if (!policy) return {};
  const session::Actions at_root = policy->allowed(prefix, true);
  return {.is_there = true,
          .opens = policy->can_deny_on_seen_file(Action::read) || policy->can_deny_on_seen_file(Action::write),
          .listings = policy->can_deny_on_seen_directory(Action::list) || !at_root.has(Action::list)};
}

IoChoice choose_io(const SessionRequest& request, const PolicyNeeds& policy, const session::SessionLimits& limits,
                   const std::vector<MountEntrySpec>& entries) {
  bool has_volatile = false, needs_opens = false, has_limit = false;
  for (const MountEntrySpec& entry : entries) {
    has_volatile = has_volatile || entry.is_volatile();
    has_limit = has_limit || entry.limits.write_bytes != 0;
    needs_opens = needs_opens || entry.is_volatile() || entry.read_only;
  }
  if (needs_opens && request.opens == "none") {
    throw session::Error(session::Errc::bad_request,
                         "--opens none cannot be had with --mount of a host directory or of what is read-only, because "
                         "that is asked for at each open; leave --opens out");
  }
  if ((policy.opens || policy.listings) && request.opens == "none") {
    throw session::Error(session::Errc::bad_request,
                         "--opens none cannot be had with this policy, because it denies opens of what can be seen and "
                         "is asked at each; leave --opens out, or let its rules deny all actions");
  }
  if (request.io == "passthrough" && limits.staged_bytes != 0) {
    throw session::Error(session::Errc::bad_request,
                         "--io passthrough cannot be had with a limit of staged bytes, because what the kernel writes "
                         "past Escrow is not counted; leave --io out");
  }
  // What was asked for by --opens counts for directories, too.
  const bool reaches_all = request.opens == "daemon";
  const Opens listings = reaches_all || policy.listings || has_volatile ? Opens::daemon : Opens::none;
  if (request.io == "writeback") {
    if (limits.staged_bytes != 0) refuse_writeback("a limit of staged bytes", "a program would be told too late");
    if (policy.is_there) refuse_writeback("a policy", "the kernel writes back in nobody's name");
    if (has_limit) refuse_writeback("a write_bytes_limit of --mount", "a program would be told too late");
    if (has_volatile)
      refuse_writeback("--mount of a host directory", "the kernel would not see what others write there");
    return {{reaches_all || needs_opens ? Opens::daemon : Opens::none, Data::writeback, listings},
            "a write-back cache was asked for"};
  }
  if (request.io == "passthrough") {
    if (request.opens == "none") {
      throw session::Error(session::Errc::bad_request,
                           "--io passthrough cannot be had with --opens none, because it is decided at each open; "
                           "leave --opens out");
    }
    return {{Opens::daemon, Data::passthrough, listings},
            "passthrough was asked for; files whose bytes are not all in one staging file are cached"};
  }
  if (policy.opens) return {{Opens::daemon, Data::cached, listings}, "a policy is asked at each open"};
  if (needs_opens)
    return {{Opens::daemon, Data::cached, listings}, "an entry of the mount table is asked for at each open"};
  if (reaches_all) return {{Opens::daemon, Data::cached, listings}, "opens that reach the daemon were asked for"};
  if (policy.listings)
    return {{Opens::none, Data::cached, listings}, "a policy is asked at each listing of a directory"};
  if (policy.is_there)
    return {{Opens::none, Data::cached, listings}, "no file that the policy lets be seen is denied at its open"};
  if (request.io == "cached") return {{Opens::none, Data::cached}, "cached data was asked for"};
  return {{Opens::none, Data::cached}, "the default"};
}

}  // namespace escrow::daemon
