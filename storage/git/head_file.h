// HEAD of a repository, without which git takes the directory for none: mended where the branches make it obvious what
// it said. A power loss right after `git init` or an older `escrow init` leaves it empty.
//
// Functions; safe between processes. Source: gitrepository-layout(5).
#pragma once

#include <string>

namespace escrow::storage {

// Whether HEAD names a branch or a commit.
bool is_head_sound(const std::string& git_directory);

// For mend_head(): the branch that HEAD of a new repository names. Durable on return.
void record_default_branch(const std::string& git_directory, const std::string& branch);

bool has_recorded_default_branch(const std::string& git_directory);

// Where HEAD is missing or says nothing: the branch that was recorded, when it is there or there is none yet, else the
// only branch. `fallback` counts while there is no branch and no record; "": none. Returns what was done, a sentence;
// empty when HEAD is sound, or another user's. Throws Error{damaged_repository} when it may have been any branch.
std::string mend_head(const std::string& git_directory, const std::string& fallback);

}  // namespace escrow::storage
