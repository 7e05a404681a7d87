// A process that hosts a session and answers nothing: what is the matter with it, and how to get past it.
//
// Free functions without state, thread-safe. Sources: proc_pid_status(5), the kernel's fs/fuse/control.c, umount(2).
#pragma once

#include <sys/types.h>

#include <string>

#include "session/base/ids.h"

namespace escrow::daemon {

// False for a process that is stopped, or was killed and has not ended. Of one that cannot be seen: true.
bool can_answer(pid_t host);

// Of a process that was killed and cannot end, because a thread of it waits for the mount that it serves itself: ends
// the mount's connection, so that it can. False when that is not what is the matter, or this user may not.
bool let_killed_host_end(pid_t host, const session::SessionId& id);

// Why a command cannot go on, and what to do.
std::string describe_silence(pid_t host, const session::SessionId& id);

}  // namespace escrow::daemon
