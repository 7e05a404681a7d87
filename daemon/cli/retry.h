// A run that is made again when it meets a conflict: each try but the last is a child process, which ends like the run
// it is, and tells this one only whether to go on.
//
// Each try reads the same of a file that is standard input. Call it while the process has one thread. Signals that
// would end this process, and job control, reach the try under way; no other one follows. Throws Error{unavailable}
// where no process can be made.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace escrow::daemon {

struct Retries {
  std::uint64_t count = 0;              // after the first try
  std::chrono::milliseconds backoff{0};  // before the first of them; twice as long before each other; 0: none
};

// Between half of the time that is due before the retry and all of it, so that runs which met do not meet again.
std::chrono::milliseconds pause_before_retry(const Retries& retries, std::uint64_t number, std::uint64_t random);

// `attempt` gets how many may follow it, sets `again` when one is to, and returns the exit status. Returns, in this
// process or in that of a try, what it is to exit with.
int run_with_retries(const Retries& retries, const std::function<int(std::uint64_t left, bool& again)>& attempt);

}  // namespace escrow::daemon
