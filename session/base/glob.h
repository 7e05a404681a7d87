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
  // The letters that each match has, as letters_of() counts them: a path that lacks one need not be matched.
  std::uint64_t letters() const { return letters_; }
  static std::uint64_t letters_of(std::string_view path) {
    std::uint64_t letters = 0;
    for (const char c : path) letters |= std::uint64_t{1} << static_cast<unsigned char>(c) % 64;
    return letters;
  }

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
  std::uint64_t letters_ = 0;
  bool is_open_ = false;              // ends with `**`: the last state takes anything that follows
};

bool glob_match(std::string_view glob, std::string_view path);

}  // namespace escrow::session
