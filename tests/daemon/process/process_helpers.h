// What the process tests share: a scratch directory, waiting for something to happen, who is alive.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

#include "daemon/process/command_spec.h"
#include "tests/support/temporary_directory.h"

namespace escrow::tests {

// A directory of its own, removed with all it holds.
class ScratchDirectory : public support::TemporaryDirectory {
 public:
  std::string file(const std::string& name) const { return path() + "/" + name; }
};

// Polls until `condition` holds; false after `patience`, which is for a machine under load: it takes moments.
bool eventually(const std::function<bool()>& condition, std::chrono::seconds patience = std::chrono::seconds(50));

std::string read_file(const std::string& path);
bool exists(const std::string& path);
// A zombie is not alive.
bool is_alive(pid_t pid);
// By a signal.
bool is_stopped(pid_t pid);
// The pid that a command wrote into a file; waits for it.
pid_t pid_from(const std::string& path);

// `sh -c script` in `directory`, with this process's environment.
daemon::CommandSpec shell(const std::string& script, const std::string& directory);

}  // namespace escrow::tests
