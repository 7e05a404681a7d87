// How to tell that a disk may have lost what was written to it and not synced, and a killed process has not.
//
// A power cut loses it, and so does a file system that shuts down after an I/O error: what it had not written is gone
// when it is mounted again, in the same boot and on the same device.
//
// | file system of `path`          | the era ends with                                             |
// |--------------------------------|---------------------------------------------------------------|
// | ext4, XFS, F2FS, NILFS2, Btrfs | the boot, the attachment of the disk, its last umount(2)      |
// | another one on a block device  | the boot, the attachment of the disk, the umount(2) of `path` |
// | tmpfs, overlayfs, NFS, ZFS ... | the boot, the umount(2) of `path`                             |
//
// The first ones have a directory below /sys/fs for as long as they are mounted, and in one boot kernfs gives no two
// directories the same inode number. Each mount namespace, bind mount and user sees the same era.
//
// The others have the id of a mount, which differs in each mount namespace and bind mount: a process there may see
// another era, although nothing was lost. Before Linux 6.8 the kernel gives such an id again: then a block device has
// the same era after umount(2) and mount(2), and a file system on no device has another one at each call.
//
// Where /sys/dev/block cannot be read, as in a container that hides it, a block device counts as no device. An XFS that
// has shut down answers no stat(2), and has another era at each call until it is mounted again.
//
// Not covered: a FUSE server or NFS server that forgets what it has acknowledged.
//
// With another era each user does what it does after a power cut: a session shows what was synced last, a cache begins
// anew, a record of reads is not complete.
#pragma once

#include <cstdint>
#include <string>

namespace escrow::storage {

// A number for the boot of this machine and for the time that the file system of `path` is mounted. While it stays the
// same, every byte that any process wrote there is in the page cache or on the disk. Always odd. Sources: random(4),
// Documentation/ABI/stable/sysfs-block (diskseq), Documentation/ABI/testing/sysfs-fs-ext4, statx(2), ioctl_btrfs(2).
std::uint64_t disk_era(const std::string& path);

}  // namespace escrow::storage
