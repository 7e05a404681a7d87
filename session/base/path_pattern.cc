#include "session/base/path_pattern.h"

#include "session/base/error.h"

namespace escrow::session {

PathPatterns::PathPatterns(const std::vector<std::string>& patterns) {
  for (const std::string& text : patterns) {
    std::string_view glob = text;
    const bool is_negated = glob.starts_with('!');
    if (is_negated) glob.remove_prefix(1);
    const bool is_of_directories = glob.ends_with('/');
    if (is_of_directories) glob.remove_suffix(1);
    const bool is_anchored = glob.find('/') != std::string_view::npos;
    if (!glob.empty() && glob.front() == '/') glob.remove_prefix(1);
    if (glob.empty())
      throw Error(Errc::bad_request, "the pattern \"" + text + "\" names nothing; give a gitignore-style pattern " +
                                         "such as '*.log' or 'build/'");
    patterns_.push_back({.glob = Glob(glob),
                         .anchored = is_anchored,
                         .directories_only = is_of_directories,
                         .negated = is_negated});
  }
}

bool PathPatterns::match(std::string_view path, bool is_directory) const {
  const std::size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  for (auto pattern = patterns_.rbegin(); pattern != patterns_.rend(); ++pattern) {
    if (pattern->directories_only && !is_directory) continue;
    if (pattern->glob.match(pattern->anchored ? path : name)) return !pattern->negated;
  }
  return false;
}

}  // namespace escrow::session
