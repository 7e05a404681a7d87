// `escrow --host import`: a directory of this machine, sent to an escrowd as a tar archive while it is read.
//
// No state. Throws what walking the directory throws (directory_walk.h), and what the service refuses it with: nothing
// was changed then.
#pragma once

#include <string>

#include "api/protocol.h"
#include "daemon/directory_walk.h"
#include "daemon/service_client.h"
#include "daemon/session_arguments.h"

namespace escrow::daemon {

// What became of an import, here or there.
struct Imported {
  api::CommitAnswer answer;
  session::SessionRecord record;
  WalkedDirectory walked;
};

Imported import_remotely(ServiceClient& client, const std::string& directory, const std::string& message,
                         const SessionArguments& arguments);

}  // namespace escrow::daemon
