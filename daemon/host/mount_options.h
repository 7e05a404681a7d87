// The -o options of mount(8) and fstab(5), as `escrow mount` takes them.
#pragma once

#include <string>
#include <vector>

#include "daemon/host/session_request.h"

namespace escrow::daemon {

struct MountArguments {
  std::string mountpoint;
  std::string session;  // of an existing detached session; empty: a new one
  SessionRequest opened;
  std::string trace;  // a file for denials, or "-": standard error; empty: none
  bool allow_other = false;
  bool in_container = false;  // programs work in it in containers only, which see no other session
  std::vector<std::string> kernel_options;  // nosuid, nodev, ...: for the kernel
};

// Applies "key=value,flag,...": the fields of a SessionRequest, session, trace, ro, allow_other and in_container; what
// mount(8) and systemd keep for themselves is skipped. Throws Error{bad_request} naming an option that is neither.
void apply_mount_options(const std::string& text, MountArguments& arguments);

}  // namespace escrow::daemon
