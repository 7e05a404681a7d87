// Runs the built `escrow` (or another program) as a person would, and captures what it prints.
//
// The binary is ESCROW_BINARY, a compile definition of the test: $<TARGET_FILE:escrow>.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace escrow::test {

struct ProcessResult {
  int status = 0;  // exit status, or 128 + the signal
  std::string out, err;
};

struct ProcessOptions {
  std::string directory;                                          // working directory; empty: inherited
  std::vector<std::pair<std::string, std::string>> environment;   // added to the inherited one
  std::string input;                                              // standard input
  std::chrono::seconds timeout{100};                              // then SIGKILL, and status 128 + 9
};

// Throws std::runtime_error when the program cannot be started.
ProcessResult run_process(const std::vector<std::string>& arguments, const ProcessOptions& options = {});

// run_process() of the built binary.
ProcessResult run_escrow(std::vector<std::string> arguments, const ProcessOptions& options = {});

// `text` through /bin/sh -c; throws std::runtime_error with its stderr unless it exits with 0. Returns stdout without
// the last newline.
std::string shell(const std::string& text, const ProcessOptions& options = {});

// The process that hosts a session of the repository, which listens; -1: it cannot be asked. unix(7): SO_PEERCRED.
pid_t host_of(const std::string& repository, const std::string& session);

}  // namespace escrow::test
