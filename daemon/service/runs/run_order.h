// The order that escrowd sends to the host process of a run: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/host/session_request.h"
#include "daemon/process/containment.h"
#include "session/interfaces/session_record.h"

namespace escrow::daemon {

struct RunOrder {
  std::string repository{};  // its path
  bool verbose = false;
  session::SessionId id;
  SessionRequest session{};            // whole: with who asks; its uid and gid are also the command's
  std::vector<std::string> command{};
  std::optional<std::vector<std::uint32_t>> groups{};  // the command's; nullopt: those that its user has
  std::string directory{};   // of the run: for its output and its cancel mark
  std::string mountpoint{};  // as the command sees it; empty: the default
  // Set: there is no command. The session stays mounted there until somebody ends it; when its host dies, it is rolled
  // back and its result kept.
  std::string host_mountpoint{};
  std::vector<std::string> environment{};  // "NAME=value"
  std::vector<std::string> python_path{};  // below the mount
  std::string who{};
  std::optional<std::int64_t> timeout_ms{};
  std::int64_t grace_ms = 0;
  Containment::Limits limits{};
  std::uint64_t output_bytes = 0;
  bool confined = true;
  bool network = false;
};

std::string encode(const RunOrder& order);
RunOrder decode_run_order(std::string_view bytes);

}  // namespace escrow::daemon
