// What the process of a command gives up just before it is executed, when it is not its caller's own.
//
// Between fork and exec, single-threaded. Throws nothing; 0 or an errno. Sources: close_range(2), seccomp_init(3),
// keyctl(2), PR_SET_NO_NEW_PRIVS in prctl(2), TIOCSTI in ioctl_tty(2).
#pragma once

#include <string>
#include <vector>

namespace escrow::daemon {

enum class Trust {
  caller,        // it is the caller's own program, and may do what they may
  another_user,  // it may be a program, but not do anything as its caller
  hostile,
};

// Where the command finds the first of the contents it is given.
inline constexpr int kFirstDataDescriptor = 100;

// No character can be put into the input of the caller's terminal: that call fails with EPERM. A hostile command also
// gains no right by executing a file, and has no calls of 32-bit modes; for another user that is so only where this
// process has not the right to set a filter. Before the change of user.
int forbid_typing_into_the_terminal(Trust trust);

// Every descriptor but the first three is closed by exec; `data` is readable at kFirstDataDescriptor and after. No key
// of the caller's session can be read. After the change of user.
int leave_callers_things(const std::vector<std::string>& data);

}  // namespace escrow::daemon
