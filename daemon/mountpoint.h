// Whether a directory can become a mountpoint, before anything is opened for it.
#pragma once

#include <functional>
#include <string>

namespace escrow::daemon {

// The absolute path of `text` (relative: from the current directory). Throws Error{bad_request} when it is missing,
// not a directory, not empty, already a session's mountpoint, inside another session's mount or inside
// `git_directory`.
std::string check_mountpoint(const std::string& text, const std::string& git_directory);

// Takes away what a dead host left behind: a mount of `source` ("escrow:ID") on `mountpoint` that nobody serves. Does
// nothing when there is none, or when this user may not.
void clear_dead_mount(const std::string& mountpoint, const std::string& source);

// The same for every session id that `is_ours` accepts, wherever it is mounted, with the directory when a run made it.
void clear_dead_mounts(const std::function<bool(const std::string&)>& is_ours);

// Processes that keep `mountpoint` busy (an open descriptor, a mapping, a working directory or root below it), as far
// as /proc lets this user see: "python3 (4711)", joined by ", ". Empty: none seen.
std::string holders_of(const std::string& mountpoint);

}  // namespace escrow::daemon
