// Files of a user's work tree, copied into a session that was just opened over the work tree's HEAD: `--with-changes`.
//
// The work tree is only read. A path is taken as it is found there: bytes, executable bit, target of a symbolic link;
// one that is not there, or is a directory by now, is removed from the session. Not thread-safe: nobody else uses the
// session yet. On disk when it returns. Throws Error{input_output} naming a file that cannot be read, and what the
// session's overlay throws; the session is then half filled, and for the caller to roll back. Source: openat2(2).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "session/transaction/session.h"

namespace escrow::daemon {

struct TakenChanges {
  std::size_t taken = 0;
  // Below other mounts or repositories, or outside of the session's prefix.
  std::vector<std::string> left;
};

// `paths` are from the root of the work tree; one that ends with a slash is another repository.
TakenChanges take_changes(const std::string& work_tree, const std::vector<std::string>& paths,
                          session::Session& session);

}  // namespace escrow::daemon
