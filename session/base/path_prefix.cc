#include "session/base/path_prefix.h"

#include <string>

#include "session/base/error.h"

namespace escrow::session {

bool git_refuses_directory(std::string_view name) {
  return git_refuses_name(name) || is_gitmodules_name(name) || is_gitattributes_name(name);
}

void check_path_prefix(const RepoPath& prefix, std::string_view what) {
  for (const std::string_view name : prefix.components()) {
    if (git_refuses_directory(name))
      throw Error(Errc::bad_request, std::string(what) + " " + quote_path(prefix.text()) + " has a component '" +
                                         quote_path(name) +
                                         "', which git refuses as a directory's name; choose another directory");
  }
}

RepoPath parse_path_prefix(std::string_view text, std::string_view what) {
  RepoPath prefix = RepoPath::parse(text, what);
  check_path_prefix(prefix, what);
  return prefix;
}

}  // namespace escrow::session
