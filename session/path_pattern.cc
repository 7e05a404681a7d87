#include "session/path_pattern.h"

#include <optional>

#include "session/error.h"

namespace escrow::session {
namespace {

// The character at glob[at], or the one that a backslash there escapes; sets `at` behind it.
char literal(std::string_view glob, std::size_t& at) {
  if (glob[at] == '\\' && at + 1 < glob.size()) ++at;
  return glob[at++];
}

// Matches `[...]` at glob[at]; sets `at` behind it. nullopt: not a class, '[' is literal.
std::optional<bool> match_class(std::string_view glob, std::size_t& at, char c) {
  std::size_t i = at + 1;
  const bool negated = i < glob.size() && (glob[i] == '!' || glob[i] == '^');
  if (negated) ++i;
  bool matched = false;
  for (bool first = true; i < glob.size() && (first || glob[i] != ']'); first = false) {
    const char low = literal(glob, i);
    char high = low;
    if (i + 1 < glob.size() && glob[i] == '-' && glob[i + 1] != ']') high = literal(glob, ++i);
    const auto value = static_cast<unsigned char>(c);
    matched = matched || (static_cast<unsigned char>(low) <= value && value <= static_cast<unsigned char>(high));
  }
  if (i >= glob.size()) return std::nullopt;
  at = i + 1;
  return matched != negated && c != '/';
}

// One character of the glob that is no star, at glob[at]; sets `at` behind it.
bool match_one(std::string_view glob, std::size_t& at, char c) {
  if (glob[at] == '?') {
    ++at;
    return c != '/';
  }
  if (glob[at] == '[')
    if (const auto matched = match_class(glob, at, c)) return *matched;
  return literal(glob, at) == c;
}

// Where a star was tried last: what follows it in the glob, and where in the text that is to match.
struct Tried {
  std::size_t glob = std::string_view::npos, text = 0;
  explicit operator bool() const { return glob != std::string_view::npos; }
};

}  // namespace

// The shortest match of the last star is enough to go back to, of either kind: a `*` ends with its component, and what
// stands between two `**` matches later wherever it matches earlier. So the time is bounded whatever a path is called.
bool glob_match(std::string_view glob, std::string_view text) {
  std::size_t g = 0, t = 0;
  Tried star, deep;
  for (;;) {
    if (g < glob.size() && glob[g] == '*') {
      std::size_t after = g;
      while (after < glob.size() && glob[after] == '*') ++after;
      const bool is_deep = after - g >= 2 && (g == 0 || glob[g - 1] == '/') &&
                           (after == glob.size() || glob[after] == '/');
      if (is_deep && after == glob.size()) return true;
      g = is_deep ? after + 1 : after;
      (is_deep ? deep : star) = {g, t};
      if (is_deep) star = {};
      continue;
    }
    if (g == glob.size() && t == text.size()) return true;
    if (g < glob.size() && t < text.size() && match_one(glob, g, text[t])) {
      if (text[t++] == '/') star = {};
      continue;
    }
    if (star && star.text < text.size() && text[star.text] != '/') {
      g = star.glob;
      t = ++star.text;
      continue;
    }
    const std::size_t slash = deep ? text.find('/', deep.text) : std::string_view::npos;
    if (slash == std::string_view::npos) return false;
    g = deep.glob;
    t = deep.text = slash + 1;
    star = {};
  }
}

PathPatterns::PathPatterns(const std::vector<std::string>& patterns) {
  for (const std::string& text : patterns) {
    Pattern pattern;
    std::string_view glob = text;
    if (!glob.empty() && glob.front() == '!') {
      pattern.negated = true;
      glob.remove_prefix(1);
    }
    if (!glob.empty() && glob.back() == '/') {
      pattern.directories_only = true;
      glob.remove_suffix(1);
    }
    pattern.anchored = glob.find('/') != std::string_view::npos;
    if (!glob.empty() && glob.front() == '/') glob.remove_prefix(1);
    if (glob.empty())
      throw Error(Errc::bad_request, "the pattern \"" + text + "\" names nothing; give a gitignore-style pattern " +
                                         "such as '*.log' or 'build/'");
    pattern.glob = glob;
    patterns_.push_back(std::move(pattern));
  }
}

bool PathPatterns::match(std::string_view path, bool is_directory) const {
  const std::size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  for (auto pattern = patterns_.rbegin(); pattern != patterns_.rend(); ++pattern) {
    if (pattern->directories_only && !is_directory) continue;
    if (glob_match(pattern->glob, pattern->anchored ? path : name)) return !pattern->negated;
  }
  return false;
}

}  // namespace escrow::session
