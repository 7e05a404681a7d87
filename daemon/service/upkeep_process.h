// gc and verify of a repository in a process of their own, as the service has it done: what the service has in its
// caches must not hide what the disk has lost, what they need of memory is given back, and they are killed without harm
// when the service stops (shutdown_deadline.h).
//
// The process dies with the thread that waits for it, and so with a service that is killed (PR_SET_PDEATHSIG, prctl(2),
// which counts the parent's threads one by one). No state; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/resources.h"
#include "daemon/process/shutdown_deadline.h"

namespace escrow::daemon {

// The first argument that makes of escrowd's own program such a process; the second is the repository, and the third of
// gc, if any, for how many seconds ended sessions are remembered. Nothing for people to type.
inline constexpr std::string_view kGcVerb = "gc";
inline constexpr std::string_view kVerifyVerb = "verify";

// The whole of that process: its exit status. The answer is said on standard output, in JSON.
int run_upkeep(std::string_view verb, const std::string& repository, std::optional<std::uint64_t> keep_sessions_s);

// Starts it, waits for it and returns its answer. Throws the Error that it met, Error{unavailable} when it was killed,
// Problem{unavailable} when the service stops.
std::string upkeep_apart(std::string_view verb, const std::string& repository, const ShutdownDeadline& stopping,
                         std::optional<std::uint64_t> keep_sessions_s = std::nullopt);

// What verify answers, of at most `most_bytes` (512 or more), whatever the findings are: long texts are cut, and the
// last finding counts those that are left out.
std::string verified_json(std::vector<api::Finding> findings, std::size_t most_bytes);

}  // namespace escrow::daemon
