// What the repository's configuration asks of every session on a branch; a session can only ask for more.
// A plain value.
#pragma once

#include <cstdint>

namespace escrow::session {

struct BranchRule {
  bool require_approval = false;        // success leads to awaiting_approval, not to a commit
  std::int64_t approval_expires_s = 0;  // after this time unapproved a result is rolled back; 0: never
  bool merges_text = false;             // files that both sides changed are merged line by line before they conflict
};

}  // namespace escrow::session
