// The environment variables that tie git to one repository. git sets them for its hooks, `rebase --exec` and aliases.
// A command that inherited them would work on the caller's repository instead of the one around it.
#pragma once

namespace escrow::daemon {

// Removes from this process's environment the names of `git rev-parse --local-env-vars` and what a hook is told beyond
// them. The author, the committer and the files of git's configuration stay. Call it first in main(), while there is
// one thread; each process that is started later does without them.
void leave_git_variables() noexcept;

}  // namespace escrow::daemon
