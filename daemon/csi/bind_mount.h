// A session's mount, seen at a second place: where the kubelet wants a pod's volume.
//
// Paths are absolute. Nothing is looked up inside a mount, whose host may be gone. Functions only; thread-safe for
// different targets. Throws Error{unavailable} naming the path. Sources: mount(2), umount2(2), proc_pid_mountinfo(5).
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace escrow::daemon {

struct MountedThere {
  std::string source;  // "escrow:ID"
  dev_t device = 0;    // another one for each time a session is mounted
  bool operator==(const MountedThere&) const = default;
};
// The topmost mount at `path`, as this process sees it; nullopt: nothing is mounted there.
std::optional<MountedThere> mount_at(const std::string& path);

// Shows at `target`, which is made when it is missing, what is mounted at `source`: without set-user-ID programs and
// devices. Idempotent: what is there already stays, unless it is another mount.
void bind_mount(const std::string& source, const std::string& target, bool is_read_only);

// Takes it away with its directory. Nothing happens where there is nothing.
void remove_bind_mount(const std::string& target);

}  // namespace escrow::daemon
