// Whether a directory can become a mountpoint, before anything is opened for it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace escrow::daemon {

// The absolute path of `text` (relative: from the current directory). Throws Error{bad_request} when it is missing,
// not a directory, not empty, already a session's mountpoint, inside another session's mount or inside
// `git_directory`.
std::string check_mountpoint(const std::string& text, const std::string& git_directory);

// The permission bits that the root of a mount must not show, because a mount of root is every user's to enter: those
// that the directory it covers does not give to group and others either, and all of them where others cannot enter the
// repository.
mode_t closed_to_others(const std::string& mountpoint, const std::string& git_directory);

// Takes away what a dead host left behind: a mount of `source` ("escrow:ID") on `mountpoint` that nobody serves. Does
// nothing when there is none, or when this user may not.
void clear_dead_mount(const std::string& mountpoint, const std::string& source);

// Asks `decide` for every mount of a session, by the session's id, whether its host is gone; `clear` then takes the
// mount away, if nobody serves it, with the directory when a run made it. Nothing is asked of a mount that lives.
using ClearIfDead = std::function<void(const std::string& id, const std::function<void()>& clear)>;
void clear_dead_mounts(const ClearIfDead& decide);

// Processes that keep `mountpoint` busy (an open descriptor, a mapping, a working directory or root below it), as far
// as /proc lets this user see: "python3 (4711)", joined by ", ". Empty: none seen.
std::string holders_of(const std::string& mountpoint);

}  // namespace escrow::daemon
