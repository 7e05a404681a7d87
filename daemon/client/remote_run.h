// `escrow --host ... run`: the command runs where the escrowd is (POST /v1/runs); its output comes here as it is
// written, and the exit status and the last line are those of a run on this machine.
//
// What cancels a run here cancels it there; the way it then ended is waited for. The command's standard input is empty.
// The run goes on while the escrowd is restarted, and is waited for: the service may be away for 30 s.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "api/json_document.h"
#include "api/result_json.h"
#include "daemon/client/service_client.h"
#include "daemon/host/denial_trace.h"

namespace escrow::daemon {

struct RemoteRunEnd {
  api::RunResult result;      // with its exit code and summary
  std::vector<std::string> warnings;  // of what was not kept
};

struct RemoteRunSettings {
  std::string program;  // what the command begins with
  std::optional<std::chrono::milliseconds> timeout{};
  DenialTrace* trace = nullptr;  // gets what is denied there; null: nothing is traced
};

// `order` is the body of POST /v1/runs. Throws what the service refuses, and Error{unavailable} when it stays away or
// fails: the run goes on there.
RemoteRunEnd run_remotely(ServiceClient& client, const api::JsonObject& order, const RemoteRunSettings& settings);

}  // namespace escrow::daemon
