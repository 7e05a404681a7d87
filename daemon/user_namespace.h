// How this process can mount a FUSE file system: as it is, through the setuid helper, or in a user namespace.
//
// Decided by looking at the machine. Throws Error{unavailable} with one sentence when no way is open. Sources:
// user_namespaces(7), mount_namespaces(7), fusermount3(1), the kernel's fs/fuse/inode.c (FS_USERNS_MOUNT).
#pragma once

namespace escrow::daemon {

enum class MountAccess {
  direct,          // CAP_SYS_ADMIN
  helper,          // fusermount3 with its set-user-id bit
  user_namespace,  // /dev/fuse can be opened, and a user namespace gives the capability
};

MountAccess find_mount_access();

// Makes this process the owner of a new user and mount namespace, with its own user and group mapped to themselves:
// mounts are then seen by it and its children only. The process must be single-threaded.
void enter_user_namespace();

}  // namespace escrow::daemon
