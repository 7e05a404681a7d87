// Waits for what another thread or process brings about, by looking again and again: the one place of the C++ tests
// that sleeps. Stateless; thread-safe.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

namespace escrow::support {

// Looks until `condition` holds; false after `patience`, which is for a machine under load: it takes moments.
template <typename Condition>
bool eventually(Condition&& condition, std::chrono::seconds patience = std::chrono::seconds(60)) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// Whether a thread of this process, by its gettid(2), waits for something; see proc_pid_stat(5).
inline bool is_waiting(pid_t thread) {
  std::string line;
  std::getline(std::ifstream("/proc/self/task/" + std::to_string(thread) + "/stat"), line);
  return line.find(") S ") != std::string::npos;
}

// Waits until the kernel's clock for the times of files has gone on: a file written from now on has a later time than
// one written before. False: the clock stands still.
inline bool next_file_time() {
  const auto now_of = [](clockid_t clock) {
    timespec now{};
    ::clock_gettime(clock, &now);
    return std::pair(now.tv_sec, now.tv_nsec);
  };
  const auto now = now_of(CLOCK_REALTIME);
  return eventually([&] { return now_of(CLOCK_REALTIME_COARSE) > now; });
}

}  // namespace escrow::support
