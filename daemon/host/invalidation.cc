#include "daemon/host/invalidation.h"

#include <string>
#include <vector>

#include "session/base/error.h"

namespace escrow::daemon {

Invalidation::~Invalidation() {
  std::vector<fuse::NameInDirectory> names;
  for (const session::Overlay::Stale& entry : session_.take_stale()) names.push_back({entry.directory, entry.name});
  try {
    mount_.invalidate(names);
  } catch (const session::Error& error) {
    log_.write(session::LogLevel::error, "the mount of session " + session_.id().text() +
                                             " may go on showing what was replaced until it is unmounted: " +
                                             error.what());
  }
}

}  // namespace escrow::daemon
