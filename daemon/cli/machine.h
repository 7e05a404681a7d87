// What this machine allows of what Escrow can use, what each is worth, and the command that turns it on: for `doctor`.
//
// look_at_machine() asks the kernel, findings_of() is pure. Nothing is thrown, nothing is changed. The figures of worth
// are ratios to ext4 that tests/bench measured; its README has them in full.
#pragma once

#include <string>
#include <vector>

#include "fuse/io_uring_support.h"

namespace escrow::daemon {

struct Machine {
  int device_error = 0;  // errno of opening /dev/fuse
  bool has_sys_admin = false;
  bool in_first_user_namespace = false;
  bool may_make_user_namespace = false;
  std::string user_namespace_command;  // what would allow it, where it is forbidden
  std::string fusermount;              // path of fusermount3, or empty
  bool fusermount_is_setuid = false;
  std::string bubblewrap;              // path of bwrap, or empty
  std::string libfuse_compiled, libfuse_running;
  fuse::IoUringObstacle io_uring = fuse::IoUringObstacle::none;
  int kernel_major = 0, kernel_minor = 0;
};

struct Finding {
  std::string name;
  bool is_on = false;
  std::string state;    // how it is here
  std::string worth;    // what it brings
  std::string command;  // that turns it on; empty: it is on, or no command can
};

Machine look_at_machine();
std::vector<Finding> findings_of(const Machine& machine);
bool can_mount(const Machine& machine);

}  // namespace escrow::daemon
