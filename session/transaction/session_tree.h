// From a session's overlay to whole-repository trees and back: where its mount sits in its base commit.
// Stateless. Throws Error{not_a_directory} when the session's prefix names a file.
#pragma once

#include <optional>
#include <vector>

#include "session/interfaces/session_record.h"
#include "session/overlay/overlay.h"
#include "session/transaction/commit.h"

namespace escrow::session {

// Fills in the base of a fresh record, the head of its branch, and when that last changed.
void look_at_branch(const Services& services, SessionRecord& record);

// The overlay over the record's base: the tree below its prefix, times from the index where the record says as of when,
// else from the base commit. Reads one commit and the trees along the prefix.
Overlay::Options overlay_options(const Services& services, const SessionRecord& record);

// What the session holds now, grafted into the whole tree of its base, without what git would not add by `rule`
// unless the session is to include it. New objects go to `quarantine`.
SessionResult session_result(Overlay& overlay, const SessionRecord& record, const BranchRule& rule,
                             Quarantine& quarantine, std::vector<Omission>& omitted);

}  // namespace escrow::session
