// gitignore-style patterns over repository paths (gitignore(5)): globs (glob.h) of which a leading `/` or an inner `/`
// anchors, a trailing `/` matches directories only, `!` re-includes. The last pattern that matches decides. A plain
// value; thread-safe for reading.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "session/base/glob.h"

namespace escrow::session {

class PathPatterns {
 public:
  PathPatterns() = default;
  // Throws Error{bad_request} for an empty pattern.
  explicit PathPatterns(const std::vector<std::string>& patterns);

  bool empty() const { return patterns_.empty(); }
  // `path` as in the repository, without a leading slash. Says nothing about the directories above it.
  bool match(std::string_view path, bool is_directory) const;

 private:
  struct Pattern {
    Glob glob;
    bool anchored = false, directories_only = false, negated = false;
  };
  std::vector<Pattern> patterns_;
};

}  // namespace escrow::session
