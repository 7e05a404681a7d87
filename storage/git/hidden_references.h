// References that git-upload-pack(1) shows nobody: lines of uploadpack.hideRefs in the repository's configuration.
//
// The file is changed under git's lock, as git changes it: lines are added at its end, and only such lines are taken
// away. Thread-safe. Throws Error{busy} when others hold the lock for long, and what the disk refuses.
#pragma once

#include <string>

namespace escrow::storage {

// `name` below the git directory: "refs/sessions/ID". On disk when it returns; twice is once.
void hide_reference(const std::string& git_directory, const std::string& name);
// Takes the line away. A power loss may bring it back: it hides a reference that is not there.
void forget_hidden_reference(const std::string& git_directory, const std::string& name);

}  // namespace escrow::storage
