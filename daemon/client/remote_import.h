// `escrow --host import`: a directory of this machine, sent to an escrowd as a tar archive while it is read.
//
// No state. Throws what walking the directory throws (directory_walk.h), and what the service refuses it with: nothing
// was changed then.
#pragma once

#include <string>

#include "api/protocol.h"
#include "daemon/client/service_client.h"
#include "daemon/host/session_request.h"
#include "daemon/import/directory_walk.h"

namespace escrow::daemon {

// What became of an import, here or there.
struct Imported {
  api::CommitAnswer answer;
  session::SessionRecord record;
  WalkedDirectory walked;
};

Imported import_remotely(ServiceClient& client, const std::string& directory, const SessionRequest& request);

}  // namespace escrow::daemon
