// Where a mount goes, and how it gets there and away: mount(2) and umount2(2) as root, libfuse's fusermount3 else.
//
// Free functions without state, thread-safe; none waits for the mount's own host. They throw Error{bad_request} for a
// mountpoint or an option that cannot be used and Error{unavailable} when the machine does not allow FUSE. Sources:
// mount(2), umount(2), mount.fuse3(8).
#pragma once

#include <sys/types.h>

#include <string>

#include "fuse/libfuse.h"
#include "fuse/mount.h"

namespace escrow::fuse {

// `mountpoint` without symbolic links, when it is an existing empty directory outside of every Escrow mount.
std::string checked_mountpoint(const std::string& mountpoint, bool is_fresh = false);

// The arguments that libfuse and fusermount3 want, as one "-o" list. Those of io_uring are not among them.
std::string fuse_options(const MountOptions& options);

// Mounts `session` at `mountpoint`, a result of checked_mountpoint.
void attach(fuse_session* session, const std::string& mountpoint, const MountOptions& options);

enum class UnmountMode { if_unused, detach };
// False when it is in use.  `mountpoint` must be a mount.
bool unmount(const std::string& mountpoint, UnmountMode mode);

// The device number of the mount that attach() has made. Throws Error{unavailable} if options.mountpoint leads to
// another.
dev_t device_of_new_mount(const MountOptions& options);
// Detaches the mount that attach() has made, at whatever path it is, while no thread answers its requests yet. If
// another mount lies on top of it, it stays.
void detach_new_mount(const MountOptions& options) noexcept;

}  // namespace escrow::fuse
