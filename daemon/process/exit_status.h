// What `escrow` exits with. `run` has its own rule (125 for every failure of Escrow's own, so that the command's status
// can be told from it); every other command follows exit_status_of().
#pragma once

#include "session/base/error.h"

namespace escrow::daemon {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitRefused = 1;         // the request cannot be done as things are: no such session, wrong state
inline constexpr int kExitUsage = 2;           // the command line is wrong
inline constexpr int kExitConflict = 122;      // a commit met conflicting changes
inline constexpr int kExitAwaitsApproval = 123;  // sealed: a reviewer decides
inline constexpr int kExitTimeout = 124;       // run: the time limit passed
inline constexpr int kExitEscrowFailed = 125;  // Escrow, the repository or the machine failed
inline constexpr int kExitCannotRun = 126;     // run: the command could not be run
inline constexpr int kExitNotFound = 127;      // run: the command was not found

int exit_status_of(session::Errc code);
// Of a problem: the one that its document has.
int exit_status_of(const session::Error& error);

}  // namespace escrow::daemon
