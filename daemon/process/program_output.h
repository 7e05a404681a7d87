// Runs another program to its end and takes what it says.
//
// Thread-safe; a thread stays until the program has ended. Standard input is /dev/null; signals are as a program
// expects them. What goes beyond `most_bytes` on either output is read and dropped. Throws Error{unavailable} when no
// process can be made. Source: posix_spawn(3).
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace escrow::daemon {

struct ProgramOutput {
  int status = 0;  // as a shell has it: 127 where there is no such program, 128+n for signal n
  std::string out, err;

  // The first line of what it complained of (or else said), but for warnings.
  std::string complaint() const;
};

inline constexpr auto kNoDeadline = std::chrono::steady_clock::time_point::max();

struct ProgramOptions {
  std::size_t most_bytes = std::size_t{1} << 20;
  // A descriptor (-1: none): when it becomes readable the program is killed, with what it has started.
  int until = -1;
  // When it comes the program is killed just so.
  std::chrono::steady_clock::time_point deadline = kNoDeadline;
  // The descriptor of a lock (-1: none). The program keeps it, in a session of its own: neither a signal to the
  // process group nor the death of this process ends it, and the lock is held until it has come to its end.
  int lock = -1;
  // Gets standard output piece by piece as it comes, in the calling thread; ProgramOutput::out stays empty.
  std::function<void(std::string_view)> hear{};
};

// The first argument is looked for in PATH.
ProgramOutput run_program(const std::vector<std::string>& arguments, const ProgramOptions& options = {});

}  // namespace escrow::daemon
