#include "daemon/io_choice.h"

#include "session/error.h"

namespace escrow::daemon {

using fuse::Data;
using fuse::Opens;

IoChoice choose_io(const SessionArguments& arguments, bool has_policy) {
  if (has_policy && arguments.opens == "none") {
    throw session::Error(session::Errc::bad_request,
                         "--opens none cannot be had with a policy, because a policy is asked at each open; leave "
                         "--opens out");
  }
  if (arguments.io == "passthrough") {
    if (arguments.opens == "none") {
      throw session::Error(session::Errc::bad_request,
                           "--io passthrough cannot be had with --opens none, because it is decided at each open; "
                           "leave --opens out");
    }
    return {{Opens::daemon, Data::passthrough},
            "passthrough was asked for; files whose bytes are not all in one staging file are cached"};
  }
  if (has_policy) return {{Opens::daemon, Data::cached}, "a policy is asked at each open"};
  if (arguments.opens == "daemon") return {{Opens::daemon, Data::cached}, "opens that reach the daemon were asked for"};
  if (arguments.io == "cached") return {{Opens::none, Data::cached}, "cached data was asked for"};
  return {{Opens::none, Data::cached}, "nothing in this session needs more"};
}

}  // namespace escrow::daemon
