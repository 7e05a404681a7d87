// Runs the real git, as the judge of what we write. Throws std::runtime_error when it fails.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include "tests/support/temporary_directory.h"

namespace escrow::support {

// Standard output of `git ARGUMENTS` in `directory`, with `input` on its standard input. No user configuration.
inline std::string run_git(const TemporaryDirectory& directory, const std::string& arguments,
                           const std::string& input = "", bool any_status = false) {
  const std::string in = directory.path() + "/.stdin", out = directory.path() + "/.stdout";
  std::ofstream(in, std::ios::binary) << input;
  const std::string command = "cd '" + directory.path() +
                              "' && GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 git " + arguments + " < '" + in +
                              "' > '" + out + "'";
  const int status = std::system(command.c_str());
  if (!any_status && status != 0)
    throw std::runtime_error("git " + arguments + " ended with status " + std::to_string(status));
  std::ifstream stream(out, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace escrow::support
