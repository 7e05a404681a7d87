// What a reference says, and which there are, read afresh from git's files: the loose one first, then packed-refs.
//
// libgit2 answers from what it remembers of packed-refs, which is no ground to move or to delete a reference on. No
// state; thread-safe. Throws Error{damaged_repository} naming the file. Source: gitrepository-layout(5).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "session/base/ids.h"

namespace escrow::storage {

// The reference that `name` stands for: what a symbolic one points to, however many lie between; else itself.
std::string resolve_reference(const std::string& git_directory, const std::string& name);

// nullopt: there is none.
std::optional<session::ObjectId> read_reference(const std::string& git_directory, const std::string& name);

// Every reference below `directory`, which has a slash at its end, sorted.
std::vector<std::string> references_below(const std::string& git_directory, const std::string& directory);

// Results and pins that have gone, whoever removed them, are gone for good on return: called before objects are removed
// that only they may have held, as after a power loss a reference to what is missing would be back.
void sync_removed_references(const std::string& git_directory);

}  // namespace escrow::storage
