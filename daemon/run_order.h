// What escrowd asks the host process of a run for, as it goes from one to the other: plain values, and why there is no
// run after all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "session/error.h"
#include "session/session_record.h"

namespace escrow::daemon {

struct RunOrder {
  std::string repository{};  // its path
  bool verbose = false;
  session::SessionId id;
  session::SessionOptions session{};  // with the command; its uid and gid are also the command's
  bool create_branch = false;
  std::string directory{};   // of the run: for its output and its cancel mark
  std::string mountpoint{};  // as the command sees it; empty: the default
  // Set: there is no command. The session stays mounted there until somebody ends it; when its host dies, it is rolled
  // back and its result kept.
  std::string host_mountpoint{};
  std::vector<std::string> environment{};  // "NAME=value"
  std::string message{}, who{};
  std::string mount_options{};  // session_terms.h
  std::optional<std::int64_t> timeout_ms{};
  std::int64_t grace_ms = 0;
  std::optional<std::uint64_t> memory_bytes{};
  std::uint64_t output_bytes = 0;
  bool confined = true;
  bool network = false;
};

std::string encode(const RunOrder& order);
RunOrder decode_run_order(std::string_view bytes);

std::string encode_refusal(const session::Error& error);
session::Error decode_refusal(std::string_view bytes);

}  // namespace escrow::daemon
