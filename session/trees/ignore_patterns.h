// What git would not add (gitignore(5)): the patterns of one file, and the files of a directory and all above it.
//
// Matching is git's own, oddities included; a test compares it with `git check-ignore`. A pattern of more than 4,096
// bytes matches nothing. IgnorePatterns is a plain value, thread-safe for reading; an IgnoreLevel is for one thread.
// Sources: dir.c (add_patterns_from_buffer, parse_path_pattern, match_pathname, last_matching_pattern_from_list,
// prep_exclude), wildmatch.c.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "session/base/glob.h"

namespace escrow::session {

// A longer .gitignore or info/exclude is refused by who reads it.
inline constexpr std::uint64_t kLargestIgnoreFile_bytes = std::uint64_t{1} << 20;

class IgnorePatterns {
 public:
  enum class Verdict { undecided, ignored, kept };

  IgnorePatterns() = default;
  // `content` of a .gitignore or an info/exclude.
  explicit IgnorePatterns(std::string_view content);

  bool empty() const { return patterns_.empty(); }
  // `path` from the directory of the file. The last pattern that matches decides; directories above are not looked at.
  Verdict verdict(std::string_view path, bool is_directory) const;

 private:
  struct Pattern {
    enum class Form { literal, suffix, glob };
    Form form = Form::literal;
    bool negated = false, directories_only = false;
    bool of_names = false;  // no inner slash: the last component is matched, not the path
    std::string text;       // of a literal or a suffix; of a glob what comes before its first special character
    Glob glob{""};
    bool match(std::string_view path, std::string_view name) const;
  };
  void add(std::string_view line);

  std::vector<Pattern> patterns_;
};

// The patterns that count in one directory: its own .gitignore, and those of the levels above. Files are read when they
// are first needed.
class IgnoreLevel {
 public:
  // The content of the directory's .gitignore; nothing: there is none.
  using ReadFile = std::function<std::string()>;

  // Of the repository's root. `exclude_file` is the content of info/exclude.
  IgnoreLevel(std::string_view exclude_file, ReadFile read);
  // `name` of the directory in that of `above`, which must outlive it.
  IgnoreLevel(IgnoreLevel& above, std::string_view name, ReadFile read);
  IgnoreLevel(const IgnoreLevel&) = delete;
  IgnoreLevel& operator=(const IgnoreLevel&) = delete;

  // Whether git leaves out what has this name in the directory, unless it tracks it: because of the name, or because of
  // a directory above.
  bool ignores(std::string_view name, bool is_directory);

 private:
  bool is_ignored();
  const IgnorePatterns& patterns();

  IgnoreLevel* const above_ = nullptr;
  const IgnorePatterns exclude_file_;  // of the root
  const std::string path_;             // from the root, with a slash at the end; empty: the root
  const std::string name_;
  ReadFile read_;                      // until it was called
  IgnorePatterns patterns_;
  std::optional<bool> is_ignored_;
};

}  // namespace escrow::session
