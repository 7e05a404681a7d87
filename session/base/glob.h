// One gitignore-style glob (gitignore(5), git's wildmatch.c with WM_PATHNAME): `*` and `?` within a component, `**`
// across, `[...]` classes, backslash escapes.
//
// Kept as an automaton whose states are bits, one for each character of the glob: matching takes the length of the path
// times a 64th of the length of the glob, whatever both are. A plain value; thread-safe for reading. Source:
// Baeza-Yates and Gonnet, "A new approach to text searching" (1992).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace escrow::session {

class Glob {
 public:
  explicit Glob(std::string_view text);
  bool match(std::string_view path) const;

 private:
  using Word = std::uint64_t;
  struct Parts;
  const Word* fitting(char c) const;

  // Constant. State n is active when what is before the glob's character n has matched; the last one has all before it.
  std::size_t characters_ = 0;
  std::size_t words_ = 1;             // of a set of states
  std::vector<Word> stars_, deeps_;   // states with a `*` or `**/` before their character
  std::vector<unsigned char> bounds_;  // where ranges of bytes begin that fit alike; the first is 0
  std::vector<Word> fits_;            // by range: the states whose character such a byte is
  bool is_open_ = false;              // ends with `**`: the last state takes anything that follows
};

bool glob_match(std::string_view glob, std::string_view path);

}  // namespace escrow::session
