// The git program, for what git does better than anybody else: who makes a Repository's upkeep says how to run it, as
// starting processes is not this folder's business.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace escrow::storage {

struct GitOutput {
  int status = 0;  // as a shell has it: 127 where git is not installed, 128+n for signal n
  std::string out, err;
};

// Runs `git ARGUMENTS` on the repository, whatever the environment says of another one. Throws when no process can be
// made.
using GitProgram = std::function<GitOutput(const std::vector<std::string>& arguments)>;

}  // namespace escrow::storage
