// The root of a session or an import, as a path in the repository: the rules for names hold for it as for what is below
// it. Pure functions. Source: gitmodulesBlob and gitattributesBlob in git's fsck.c, beside those of git_refuses_name().
#pragma once

#include <string_view>

#include "session/base/repo_path.h"

namespace escrow::session {

// Whether git refuses a directory called `name`: also .gitmodules and .gitattributes, which it reads as files.
bool git_refuses_directory(std::string_view name);

// Throws Error{bad_request} naming `what` (for example "--path-prefix") if git refuses a component of `prefix`.
void check_path_prefix(const RepoPath& prefix, std::string_view what);

// RepoPath::parse() and check_path_prefix().
RepoPath parse_path_prefix(std::string_view text, std::string_view what);

}  // namespace escrow::session
