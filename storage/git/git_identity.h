// Who git takes the author of a commit to be.
//
// As `git var GIT_AUTHOR_IDENT` finds it: GIT_AUTHOR_NAME and GIT_AUTHOR_EMAIL of the environment, else author.name or
// user.name, and author.email or user.email, of the configuration of the repository, then the user (GIT_CONFIG_GLOBAL,
// ~/.gitconfig, XDG), then the machine. Git guesses what is missing; here there is no identity then. Thread-safe.
#pragma once

#include <optional>
#include <string>

namespace escrow::storage {

struct GitIdentity {
  std::string name, email;
};

// nullopt: neither says both, or the repository or a file cannot be read.
std::optional<GitIdentity> author_identity(const std::string& git_directory);

}  // namespace escrow::storage
