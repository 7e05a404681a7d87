// How this process can mount a FUSE file system: as it is, through the setuid helper, or in a user namespace.
//
// Decided by looking at the machine. Throws Error{unavailable} with one sentence when no way is open. Sources:
// user_namespaces(7), mount_namespaces(7), fusermount3(1), the kernel's fs/fuse/inode.c (FS_USERNS_MOUNT).
#pragma once

#include <string>

namespace escrow::daemon {

enum class MountAccess {
  direct,          // CAP_SYS_ADMIN
  helper,          // fusermount3 with its set-user-id bit
  user_namespace,  // /dev/fuse can be opened, and a user namespace gives the capability
};

MountAccess find_mount_access();

// The facts that decide it; nothing is thrown.
bool has_sys_admin();            // CAP_SYS_ADMIN in the user namespace of this process
bool in_first_user_namespace();  // that of the machine itself
int fuse_device_error();         // errno of opening /dev/fuse, 0 when it opens
struct Helper {
  std::string path;  // of fusermount3; empty: not installed
  bool is_setuid = false;
};
Helper find_fusermount();
// Tries it, in a child.
bool may_make_user_namespace();
// The command that allows it where a setting of the kernel forbids it.
std::string user_namespace_command();

// Makes this process the owner of a new user and mount namespace, with its own user and group mapped to themselves:
// mounts are then seen by it and its children only. The process must be single-threaded.
void enter_user_namespace();

}  // namespace escrow::daemon
