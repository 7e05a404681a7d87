// What takes paths of a session back to its base, for apply_changes(). Reads trees and the overlay; no state.
#pragma once

#include <vector>

#include "session/interfaces/session_record.h"
#include "session/overlay/overlay.h"
#include "session/trees/tree_changes.h"

namespace escrow::session {

// `paths` are whole-repository ones, with all below; the changes' are below the mount's root. Throws Error{not_found}
// naming a path that neither the base nor the session has.
std::vector<PathChange> changes_back(Overlay& overlay, const ObjectReader& objects, const SessionRecord& row,
                                     const std::vector<RepoPath>& paths);

}  // namespace escrow::session
