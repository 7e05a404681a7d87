// The options before the command: which repository or service, and how much is logged.
#pragma once

#include <string>
#include <vector>

namespace escrow::daemon {

struct GlobalOptions {
  std::string repository;  // --repo; empty: ESCROW_REPO, else the enclosing git repository (config.h)
  std::string host;        // --host; empty: ESCROW_HOST, else this machine's own repositories (remote_sessions.h)
  bool verbose = false;
  // Commits take along the work trees that have the branch checked out, and the branch of the work tree around this
  // directory is the default one; empty: a branch that is checked out is refused (checkouts.h).
  std::string checkouts_from;
  std::vector<std::string> arguments;  // argv as it came: CLI11 takes apart what looks like a [list] (words_as_given)
};

}  // namespace escrow::daemon
