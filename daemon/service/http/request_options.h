// What a session, a run or a mount of escrowd is asked for beyond what every one has: what of it is committed, which
// links it shows, how its mounts work. Read from requests, strictly, and checked against what the caller may have.
//
// How mounts work is one text, as `escrow mount -o` takes it: in the store, and on its way to the host of a run. Pure
// functions; each throws api::Problem naming the field.
#pragma once

#include <string>

#include "api/request_fields.h"
#include "daemon/host/io_choice.h"
#include "daemon/host/mount_options.h"
#include "daemon/service/caller.h"
#include "session/interfaces/session_record.h"

namespace escrow::daemon {

// How its mounts work, with "mount_options", which are for the kernel: of a mount that the service itself makes.
std::string read_mount_options(api::RequestFields& fields, const SessionRequest& session);

// What such a text says.
MountArguments mounting_of(const std::string& mount_options);
// What of a session decides who may have it, and how it may be mounted.
struct GuardTerms {
  explicit GuardTerms(const session::SessionOptions& options);
  explicit GuardTerms(const SessionRequest& request);
  bool has_contained_symlinks;
  PolicyNeeds policy;
  session::SessionLimits limits;
};
// Whether a session with these terms may be had, and mounted so, by this caller. Throws api::Problem.
void check_terms(const Caller& caller, const GuardTerms& terms, const std::string& mount_options);

}  // namespace escrow::daemon
