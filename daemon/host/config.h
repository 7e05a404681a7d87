// Where the command line finds its repository and who its user is. No state.
#pragma once

#include <string>

#include "daemon/host/global_options.h"

namespace escrow::daemon {

// --repo, else ESCROW_REPO, else that of the session in whose mount the current directory lies, else the git repository
// that encloses it; throws Error{no_repository}.
// An absolute path, or a place in object storage, s3://BUCKET/PREFIX.
std::string repository_path(const GlobalOptions& options);
// The directory in which the repository is looked for: --repo, ESCROW_REPO, or the current one.
std::string place_of_the_user(const GlobalOptions& options);

// "user:NAME" of the user this process works for: $SUDO_USER is not believed, the real user id is.
std::string current_principal();
// The same for a user id.
std::string principal_of(unsigned uid);

// `path` from the current directory, "." and ".." resolved by name only; symbolic links stay.
std::string absolute_path(const std::string& path);

}  // namespace escrow::daemon
