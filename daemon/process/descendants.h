// The processes below this one in the process tree, daemonised ones included, and how to end them all.
//
// A process that calls become_subreaper() inherits every orphan below it, so "no child left" means "no descendant
// left" (prctl(2), PR_SET_CHILD_SUBREAPER). For single-threaded owners. Throws nothing.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace escrow::daemon {

void become_subreaper();

// Every process below `root` in /proc, `root` itself not included.
std::vector<pid_t> descendants_of(pid_t root);

// How many processes and threads the user has now.
std::uint64_t tasks_of(uid_t user);

// Stops, then kills, whatever is below this process, and reaps it; repeats until nothing is left or `patience` is
// over. Returns the survivors: processes of other users that may not be killed, or ones stuck in the kernel.
std::vector<pid_t> end_descendants(std::chrono::milliseconds patience);

}  // namespace escrow::daemon
