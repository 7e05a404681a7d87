#include "daemon/host/io_choice.h"

#include "session/base/error.h"

namespace escrow::daemon {

using fuse::Data;
using fuse::Opens;

namespace {

[[noreturn]] void refuse_writeback(const std::string& with, const std::string& because) {
  throw session::Error(session::Errc::bad_request, "--io writeback cannot be had with " + with + ", because " +
                                                       because + "; leave --io out");
}

}  // namespace

IoChoice choose_io(const SessionRequest& request, bool has_policy, const session::SessionLimits& limits,
                   const std::vector<MountEntrySpec>& entries) {
  bool has_volatile = false, needs_opens = false;
  for (const MountEntrySpec& entry : entries) {
    has_volatile = has_volatile || entry.is_volatile();
    needs_opens = needs_opens || entry.is_volatile() || entry.read_only;
  }
  if (needs_opens && request.opens == "none") {
    throw session::Error(session::Errc::bad_request,
                         "--opens none cannot be had with --mount of a host directory or of what is read-only, because "
                         "that is asked for at each open; leave --opens out");
  }
  if (has_policy && request.opens == "none") {
    throw session::Error(session::Errc::bad_request,
                         "--opens none cannot be had with a policy, because a policy is asked at each open; leave "
                         "--opens out");
  }
  if (request.io == "passthrough" && limits.staged_bytes != 0) {
    throw session::Error(session::Errc::bad_request,
                         "--io passthrough cannot be had with a limit of staged bytes, because what the kernel writes "
                         "past Escrow is not counted; leave --io out");
  }
  if (request.io == "writeback") {
    if (limits.staged_bytes != 0) refuse_writeback("a limit of staged bytes", "a program would be told too late");
    if (has_policy) refuse_writeback("a policy", "the kernel writes back in nobody's name");
    if (has_volatile)
      refuse_writeback("--mount of a host directory", "the kernel would not see what others write there");
    return {{request.opens == "daemon" || needs_opens ? Opens::daemon : Opens::none, Data::writeback},
            "a write-back cache was asked for"};
  }
  if (request.io == "passthrough") {
    if (request.opens == "none") {
      throw session::Error(session::Errc::bad_request,
                           "--io passthrough cannot be had with --opens none, because it is decided at each open; "
                           "leave --opens out");
    }
    return {{Opens::daemon, Data::passthrough},
            "passthrough was asked for; files whose bytes are not all in one staging file are cached"};
  }
  if (has_policy) return {{Opens::daemon, Data::cached}, "a policy is asked at each open"};
  if (needs_opens) return {{Opens::daemon, Data::cached}, "an entry of the mount table is asked for at each open"};
  if (request.opens == "daemon") return {{Opens::daemon, Data::cached}, "opens that reach the daemon were asked for"};
  if (request.io == "cached") return {{Opens::none, Data::cached}, "cached data was asked for"};
  return {{Opens::none, Data::cached}, "the default"};
}

}  // namespace escrow::daemon
