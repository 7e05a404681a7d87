// The commits that were made with git inside a session: those that its HEAD has and the repository has not, read from
// the session's own .git, and the objects that only it has.
//
// What is in the .git is the command's, and nothing of it is trusted: objects are read loose and by their ids, whose
// hashes are compared for trees and commits (who puts a blob elsewhere compares its); references lead nowhere outside
// of the .git. Throws what the session's files throw. Sources: gitrepository-layout(5), git-pack-refs(1).
#pragma once

#include "session/transaction/session.h"

namespace escrow::daemon {

// None: there is no .git of Escrow's, or nothing was committed in it that ends at a commit of the repository. Where
// they cannot be kept one by one, why_not says so. The session outlives what is returned.
session::CommitsInside commits_inside(session::Session& session);

}  // namespace escrow::daemon
