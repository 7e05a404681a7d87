// The controlling terminal of a run: which process group is in its foreground, and its modes (termios(3)).
//
// Owned by the supervisor of a run, single-threaded. SIGTTOU must be blocked: the owner changes the foreground from
// the background. Throws nothing; without a terminal every call does nothing. Source: POSIX.1-2017, chapter 11.
#pragma once

#include <sys/types.h>
#include <termios.h>

#include <optional>

#include "daemon/process/file_descriptor.h"

namespace escrow::daemon {

class Terminal {
 public:
  Terminal();

  bool is_present() const noexcept { return static_cast<bool>(device_); }
  // Standard input and output are the terminal, and this process's group is in its foreground: its user runs the
  // command and nothing beside it (no pipe into a pager that needs the terminal too).
  bool is_interactive() const;
  // This process's group is in the foreground now.
  bool is_ours() const;

  // Async-signal-safe.
  void give_to(pid_t group) const noexcept;
  // Back to this process's group, if the foreground is `group` or no group that lives.
  void take_back_from(pid_t group) const;
  void restore_modes() const;

 private:
  FileDescriptor device_;          // constant
  std::optional<termios> modes_;   // constant: as they were at construction
};

}  // namespace escrow::daemon
