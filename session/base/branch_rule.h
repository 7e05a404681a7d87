// What the repository's configuration asks of every session on a branch; a session can only ask for more approval.
// Plain values.
#pragma once

#include <cstdint>
#include <string>

namespace escrow::session {

// What is left out of commits because git would not add it (gitignore(5)).
struct IgnoreRule {
  bool is_on = true;           // escrow.ignore=git; off with none
  std::string exclude_file{};  // what info/exclude of the repository says
};

struct BranchRule {
  bool require_approval = false;        // success leads to awaiting_approval, not to a commit
  std::int64_t approval_expires_s = 0;  // after this time unapproved a result is rolled back; 0: never
  IgnoreRule ignore{};
  std::string attributes_file{};        // what info/attributes of the repository says (gitattributes(5))
  bool stores_raw = false;              // files that git would filter are committed with their bytes
  bool merges_text = false;             // files that both sides changed are merged line by line before they conflict
};

}  // namespace escrow::session
