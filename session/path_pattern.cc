#include "session/path_pattern.h"

#include <optional>

#include "session/error.h"

namespace escrow::session {
namespace {

// Matches `[...]` at glob[at]; sets `at` behind it. nullopt: not a class, '[' is literal.
std::optional<bool> match_class(std::string_view glob, std::size_t& at, char c) {
  std::size_t i = at + 1;
  const bool negated = i < glob.size() && (glob[i] == '!' || glob[i] == '^');
  if (negated) ++i;
  bool matched = false;
  for (bool first = true; i < glob.size() && (first || glob[i] != ']'); first = false) {
    char low = glob[i++];
    if (low == '\\' && i < glob.size()) low = glob[i++];
    char high = low;
    if (i + 1 < glob.size() && glob[i] == '-' && glob[i + 1] != ']') {
      high = glob[i + 1];
      i += 2;
    }
    const auto value = static_cast<unsigned char>(c);
    matched = matched || (static_cast<unsigned char>(low) <= value && value <= static_cast<unsigned char>(high));
  }
  if (i >= glob.size()) return std::nullopt;
  at = i + 1;
  return matched != negated && c != '/';
}

bool match_from(std::string_view glob, std::size_t g, std::string_view text, std::size_t t) {
  while (g < glob.size()) {
    if (glob[g] == '*') {
      const bool starts_component = g == 0 || glob[g - 1] == '/';
      std::size_t after = g;
      while (after < glob.size() && glob[after] == '*') ++after;
      const bool deep = after - g >= 2 && starts_component && (after == glob.size() || glob[after] == '/');
      if (deep && after < glob.size()) {  // "**/" also matches nothing
        if (match_from(glob, after + 1, text, t)) return true;
      }
      for (std::size_t end = t; end <= text.size(); ++end) {
        if (match_from(glob, after, text, end)) return true;
        if (end < text.size() && text[end] == '/' && !deep) return false;
      }
      return false;
    }
    if (t >= text.size()) return false;
    if (glob[g] == '?') {
      if (text[t] == '/') return false;
    } else if (glob[g] == '[') {
      std::size_t behind = g;
      if (const auto matched = match_class(glob, behind, text[t])) {
        if (!*matched) return false;
        g = behind;
        ++t;
        continue;
      }
      if (text[t] != '[') return false;
    } else {
      if (glob[g] == '\\' && g + 1 < glob.size()) ++g;
      if (glob[g] != text[t]) return false;
    }
    ++g;
    ++t;
  }
  return t == text.size();
}

}  // namespace

bool glob_match(std::string_view glob, std::string_view text) { return match_from(glob, 0, text, 0); }

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
