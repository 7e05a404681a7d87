// Three versions of a text made one, as git-merge-file(1) does it: what only one side changed is taken, changes that
// touch or overlap are not. Thread-safe while there is a GitRepositoryPool, which starts libgit2. Throws
// std::bad_alloc.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace escrow::storage {

// nullopt: changes overlap, or one of the versions is no text (git takes what has a NUL in its first 8,000 bytes for
// binary).
std::optional<std::string> merge_text(std::string_view base, std::string_view ours, std::string_view theirs);

}  // namespace escrow::storage
