// Finding a git directory, and refusing one that libgit2 would misread, by name of what is in the way.
//
// Throws Error{no_repository}, Error{unsupported_repository}, Error{damaged_repository}; see gitrepository-layout(5)
// and the "extensions" section of git-config(1).
#pragma once

#include <optional>
#include <string>

#include "storage/git/git_handle.h"

namespace escrow::storage {

// The absolute git directory (of a linked work tree: the common one) at `path` itself: a bare repository, a work tree
// or a .git directory; nullopt when `path` is not a git repository. Nothing above `path` is looked at.
std::optional<std::string> find_git_directory(const std::string& path);

// Throws Error{input_output} where it cannot be looked at.
GitConfig open_config(const std::string& path);

// Checks extensions, ownership and the presence of HEAD, objects and refs, then opens it.
GitRepository open_git_repository(const std::string& git_directory);

}  // namespace escrow::storage
