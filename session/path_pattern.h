// gitignore-style patterns over repository paths (gitignore(5)): `*` and `?` within a component, `**` across,
// `[...]` classes, a leading `/` or an inner `/` anchors, a trailing `/` matches directories only, `!` re-includes.
// The last pattern that matches decides. A plain value; thread-safe for reading.
#pragma once

#include <string>
#include <string_view>
#include <vector>

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
    std::string glob;
    bool anchored = false, directories_only = false, negated = false;
  };
  std::vector<Pattern> patterns_;
};

// git's wildmatch with WM_PATHNAME (wildmatch.c).
bool glob_match(std::string_view glob, std::string_view text);

}  // namespace escrow::session
