// What the process of a hostile command gives up just before it is executed.
//
// Between fork and exec, single-threaded. Throws nothing. Sources: close_range(2), seccomp(2), keyctl(2),
// PR_SET_NO_NEW_PRIVS in prctl(2), TIOCSTI in ioctl_tty(2).
#pragma once

#include <string>
#include <vector>

namespace escrow::daemon {

// Where the command finds the first of the contents it is given.
inline constexpr int kFirstDataDescriptor = 100;

// Every descriptor but the first three is closed by exec; `data` is readable at kFirstDataDescriptor and after.
// No right can be gained by executing a file, no key of the caller's session be read, and no character be put into the
// input of the caller's terminal (that call fails with EPERM). Returns 0 or an errno.
int harden_process(const std::vector<std::string>& data);

}  // namespace escrow::daemon
