// Runs another program to its end and takes what it says.
//
// Thread-safe; a thread stays until the program has ended. Standard input is /dev/null; signals are as a program
// expects them. What goes beyond 1 MiB on either output is read and dropped. Throws Error{unavailable} when no process
// can be made. Source: posix_spawn(3).
#pragma once

#include <string>
#include <vector>

namespace escrow::daemon {

struct ProgramOutput {
  int status = 0;  // as a shell has it: 127 where there is no such program, 128+n for signal n
  std::string out, err;

  // The first line of what it complained of (or else said), but for warnings.
  std::string complaint() const;
};

// The first argument is looked for in PATH. When the descriptor `until` becomes readable the program is killed, with
// what it has started; -1: there is none.
ProgramOutput run_program(const std::vector<std::string>& arguments, int until = -1);

}  // namespace escrow::daemon
