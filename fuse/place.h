// What lies at a path of this machine, and what is mounted: asked without waiting for ever for a file system that does
// not answer.
//
// Free functions without state, thread-safe. They throw Error{unavailable} when no helper process can be had, or the
// table of the mounts cannot be read. Sources: proc_pid_mountinfo(5), statfs(2), the kernel's fs/fuse.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace escrow::fuse {

inline constexpr const char* kMountType = "fuse.escrow";

// What is at a path. A helper process has looked: the path may lead into a mount of this very process, or into one
// whose host does not answer.
struct Place {
  bool answered = true;       // false: the file system there said nothing for kPlacePatience, and nothing else is known
  int error = 0;              // why it cannot be reached or listed
  bool has_dead_host = false; // it is on a FUSE mount that nobody serves any more
  bool is_directory = false, is_empty = false, is_on_fuse = false;
  std::string path;           // without symbolic links
};
inline constexpr std::chrono::seconds kPlacePatience{10};
Place look_at(const std::string& path);
// The same without a helper: of a directory that this process has just made, so that its file system answers, and that
// lies in no mount of its own.
Place look_at_fresh(const std::string& path);

// Whether an error of looking at a path is the machine's at this moment (no descriptor, no memory, a failing disk): it
// says nothing of the path, and who asks again may be told otherwise.
bool is_the_machines(int error);

// Whether the FUSE mount at `path` has no server any more. Asked with statfs(2), for stat(2) may be answered from the
// kernel's cache, which outlives the server. False also when nothing is said for so long.
bool is_dead_mount(const std::string& path, std::chrono::milliseconds patience = kPlacePatience);

// The device number of the file system that `path` leads to, as in MountedPath; nullopt, with errno, when it cannot be
// reached. No server of a file system is asked: on FUSE nothing else than the device is known without it.
std::optional<dev_t> device_of(const std::string& path);

// A line of a process's table of mounts. That of another process is empty when the process has gone.
struct MountedPath {
  std::uint64_t id = 0, parent = 0;  // parent: the mount that it lies in, or on top of
  dev_t device = 0;
  std::string root, path, type, source;
};
std::vector<MountedPath> mounted_paths(const std::string& table = "/proc/self/mountinfo");

}  // namespace escrow::fuse
