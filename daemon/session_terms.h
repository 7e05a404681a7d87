// What a session, a run or a mount of escrowd is asked for beyond what every one has: what of it is committed, which
// links it shows, how its mounts work. Read from requests, strictly, and checked against what the caller may have.
//
// How mounts work is one text, as `escrow mount -o` takes it: in the store, and on its way to the host of a run. Pure
// functions; each throws api::Problem naming the field.
#pragma once

#include <string>

#include "api/request_fields.h"
#include "daemon/caller.h"
#include "daemon/mount_options.h"
#include "session/session_record.h"

namespace escrow::daemon {

// exclude, symlinks, keep_on_failure and policy.
void read_terms(api::RequestFields& fields, session::SessionOptions& options);
// io and xattr; empty when neither is there.
std::string read_io(api::RequestFields& fields);
// The same and mount_options, which are for the kernel: of a mount that the service itself makes.
std::string read_mount_options(api::RequestFields& fields);

// What such a text says.
MountArguments mounting_of(const std::string& mount_options);
// Whether a session with these options may be had, and mounted so, by this caller.
void check_terms(const Caller& caller, const session::SessionOptions& options, const std::string& mount_options);

}  // namespace escrow::daemon
