// How many descriptors a process may have open (RLIMIT_NOFILE in setrlimit(2)).
//
// Functions of the whole process; what it starts afterwards inherits the limit, which is why the supervisor of a
// command is started before. Throw nothing: what cannot be raised stays.
#pragma once

#include <sys/resource.h>

namespace escrow::daemon {

// As far as it goes without a right: for who serves many files, or many connections.
void allow_many_descriptors() noexcept;
// For what is no server; never more than is allowed.
void allow_descriptors(rlim_t count) noexcept;

}  // namespace escrow::daemon
