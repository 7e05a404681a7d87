// What a reference says, and which there are, read afresh from git's files: loose ones first, then packed-refs.
//
// git packs a reference in this order: it renames packed-refs into place, then it removes the loose file. A reference
// whose file was gone when we looked is therefore in the packed-refs that we open afterwards. A file that is there is
// newer than packed-refs, so that its value counts. libgit2 lists names first, reads the files later and skips those
// that went; it also answers from what it remembers of packed-refs.
//
// No state; thread-safe. Throws Error{damaged_repository} naming the file, and the machine's errors: only ENOENT and
// ENOTDIR mean that a file is gone. Sources: gitrepository-layout(5), refs/files-backend.c and packed-backend.c of git.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "session/base/error.h"
#include "session/base/ids.h"

namespace escrow::storage {

// The reference that `name` stands for: what a symbolic one points to, however many lie between; else itself.
std::string resolve_reference(const std::string& git_directory, const std::string& name);

// nullopt: there is none.
std::optional<session::ObjectId> read_reference(const std::string& git_directory, const std::string& name);

struct Reference {
  std::string name;                     // "refs/heads/main"
  std::optional<session::ObjectId> id;  // nullopt: it is symbolic
  std::string points_to;                // the name in a symbolic one
};

// Called for each file that should be a reference and is none (empty, or of a name that git refuses), and for a damaged
// packed-refs.
using TakeDamaged = std::function<void(const std::string& name, const session::Error& error)>;

// Every reference below `directory`, which has a slash at its end, sorted. One that exists throughout is among them,
// with a value that it had meanwhile; one that is deleted meanwhile may be. If a file vanishes that packed-refs lacks,
// another pass follows: a reference may have got another name. Damage is thrown if `damaged` is null. Throws
// Error{busy} if new files vanished in each of 100 passes.
std::vector<Reference> read_references(const std::string& git_directory, const std::string& directory,
                                       const TakeDamaged& damaged = nullptr);

// read_references() of "refs/" and of each linked work tree's own (refs/bisect, refs/rewritten, refs/worktree), which
// are named as in the main work tree: "worktrees/NAME/refs/bisect/bad". Source: git-worktree(1), REFS.
std::vector<Reference> all_references(const std::string& git_directory, const TakeDamaged& damaged = nullptr);

// The names alone, those of damaged files too.
std::vector<std::string> references_below(const std::string& git_directory, const std::string& directory);

// Results and pins that have gone, whoever removed them, are gone for good on return: called before objects are removed
// that only they may have held, as after a power loss a reference to what is missing would be back.
void sync_removed_references(const std::string& git_directory);

}  // namespace escrow::storage
