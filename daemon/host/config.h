// Where the command line finds its repository and who its user is. No state.
#pragma once

#include <string>

#include "daemon/host/global_options.h"

namespace escrow::daemon {

// --repo, else ESCROW_REPO, else the git repository that encloses the current directory; throws Error{no_repository}.
std::string repository_path(const GlobalOptions& options);
// The directory in which the repository is looked for: --repo, ESCROW_REPO, or the current one.
std::string place_of_the_user(const GlobalOptions& options);

// "user:NAME" of the user this process works for: $SUDO_USER is not believed, the real user id is.
std::string current_principal();
// The same for a user id.
std::string principal_of(unsigned uid);

// `path` from the current directory, "." and ".." resolved by name only; symbolic links stay. A repository in object
// storage, s3://BUCKET/PREFIX, is one wherever it is named.
std::string absolute_path(const std::string& path);

}  // namespace escrow::daemon
