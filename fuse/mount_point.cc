#include "fuse/mount_point.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "fuse/passthrough.h"
#include "fuse/place.h"
#include "session/base/error.h"

namespace escrow::fuse {
namespace {

using session::Errc;
using session::Error;

constexpr int kLooks = 200;
constexpr std::chrono::milliseconds kBetweenLooks{10};
constexpr std::chrono::milliseconds kAnswerOfTheDead{500};

struct FlagOption {
  std::string_view name;
  unsigned long flag;
  bool sets;
};
constexpr FlagOption kFlagOptions[] = {
    {"ro", MS_RDONLY, true},
    {"rw", MS_RDONLY, false},
    {"nosuid", MS_NOSUID, true},
    {"suid", MS_NOSUID, false},
    {"nodev", MS_NODEV, true},
    {"dev", MS_NODEV, false},
    {"noexec", MS_NOEXEC, true},
    {"exec", MS_NOEXEC, false},
    {"sync", MS_SYNCHRONOUS, true},
    {"async", MS_SYNCHRONOUS, false},
    {"dirsync", MS_DIRSYNC, true},
    {"noatime", MS_NOATIME, true},
    {"atime", MS_NOATIME, false},
    {"nodiratime", MS_NODIRATIME, true},
    {"diratime", MS_NODIRATIME, false},
    {"relatime", MS_RELATIME, true},
    {"strictatime", MS_STRICTATIME, true},
};

// Words of fstab that concern mount(8) and not the kernel.
bool is_for_mount8(std::string_view option) {
  for (const std::string_view word : {"defaults", "auto", "noauto", "user", "nouser", "users", "owner", "group",
                                      "nofail", "_netdev", "default_permissions"}) {
    if (option == word) return true;
  }
  return option.starts_with("x-") || option.starts_with("X-") || option.starts_with("comment=");
}

// Commas and backslashes separate options.
std::string escaped(const std::string& value) {
  std::string result;
  for (const char c : value) {
    if (c == ',' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

bool contains(const std::string& directory, const std::string& path) {
  return path == directory || path.starts_with(directory.ends_with('/') ? directory : directory + "/");
}

// The Escrow mount that `path` lies in, if any.
std::optional<std::string> enclosing_escrow_mount(const std::string& path) {
  for (const MountedPath& mounted : mounted_paths())
    if (mounted.type == kMountType && contains(mounted.path, path)) return mounted.path;
  return std::nullopt;
}

struct KernelOptions {
  unsigned long flags = MS_NOSUID | MS_NODEV;
  std::string data;
};

KernelOptions kernel_options(const MountOptions& options, int device) {
  KernelOptions result;
  result.data = "fd=" + std::to_string(device) + ",rootmode=40000,user_id=" + std::to_string(geteuid()) +
                ",group_id=" + std::to_string(getegid()) + ",default_permissions";
  if (options.allow_other) result.data += ",allow_other";
  if (options.read_only) result.flags |= MS_RDONLY;
  for (const std::string& option : options.extra_options) {
    bool is_flag = false;
    for (const FlagOption& known : kFlagOptions) {
      if (option != known.name) continue;
      result.flags = known.sets ? result.flags | known.flag : result.flags & ~known.flag;
      is_flag = true;
    }
    if (!is_flag && !is_for_mount8(option)) result.data += "," + option;
  }
  return result;
}

[[noreturn]] void refuse_mount(const std::string& mountpoint, int error) {
  const std::string what = "cannot mount at " + mountpoint + ": ";
  switch (error) {
    case EINVAL:
      throw Error(Errc::bad_request, what + "the kernel does not accept the mount options; see mount.fuse3(8)");
    case ENODEV:
      throw Error(Errc::unavailable, what + "the kernel has no FUSE; load it with `modprobe fuse`");
    case EPERM:
    case EACCES:
      throw Error(Errc::unavailable, what + "mounting is not permitted (" + std::strerror(error) +
                                         "); it takes root, CAP_SYS_ADMIN or the fusermount3 program");
    default:
      throw Error(Errc::unavailable, what + std::strerror(error));
  }
}

// True when mounted; false when this process may not mount by itself.
bool attach_directly(fuse_session* session, const std::string& mountpoint, const MountOptions& options) {
  const int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (device < 0) {
    const int error = errno;
    if (error == EACCES && geteuid() != 0) return false;
    throw Error(Errc::unavailable, "cannot mount at " + mountpoint + ": /dev/fuse cannot be opened (" +
                                       std::strerror(error) +
                                       "); load the module with `modprobe fuse`, or give the container the device");
  }
  const KernelOptions kernel = kernel_options(options, device);
  if (mount(options.source.c_str(), mountpoint.c_str(), kMountType, kernel.flags, kernel.data.c_str()) != 0) {
    const int error = errno;
    close(device);
    if ((error == EPERM || error == EACCES) && geteuid() != 0) return false;
    refuse_mount(mountpoint, error);
  }
  // libfuse takes the descriptor over.
  const bool is_taken = options.io.data == Data::passthrough
                            ? take_device_for_passthrough(session, device)
                            : fuse_session_mount(session, ("/dev/fd/" + std::to_string(device)).c_str()) == 0;
  if (!is_taken) {
    detach_new_mount(options);
    close(device);
    throw Error(Errc::unavailable, "cannot mount at " + mountpoint + ": libfuse did not take /dev/fuse over");
  }
  return true;
}

// As a word of sh(1).
std::string quoted(const std::string& word) {
  std::string result = "'";
  for (const char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

bool run_fusermount(const std::string& mountpoint, UnmountMode mode) {
  const std::string command = std::string("fusermount3 -u -q ") + (mode == UnmountMode::detach ? "-z " : "") + "-- " +
                              quoted(mountpoint) + " >/dev/null 2>&1";
  FILE* const program = popen(command.c_str(), "we");
  return program != nullptr && pclose(program) == 0;
}

}  // namespace

std::string checked_mountpoint(const std::string& mountpoint, bool is_fresh) {
  const auto refuse = [&](const std::string& why, Errc code = Errc::bad_request) {
    throw Error(code, "cannot mount at " + mountpoint + ": " + why);
  };
  if (!mountpoint.starts_with('/')) refuse("a mountpoint is an absolute path");
  const Place place = is_fresh ? look_at_fresh(mountpoint) : look_at(mountpoint);
  if (!place.answered) refuse("the file system there does not answer", Errc::unavailable);
  if (is_the_machines(place.error)) refuse(std::string(std::strerror(place.error)) + "; try again", Errc::unavailable);
  if (place.path.empty()) refuse(std::string(std::strerror(place.error)) + "; name an existing empty directory");
  // The table of the mounts, long where there are many sessions, is read here only for a path on FUSE.
  const auto enclosing = place.is_on_fuse || place.error != 0 ? enclosing_escrow_mount(place.path) : std::nullopt;
  if (enclosing) refuse("it lies in the mount of another session, " + *enclosing + "; name a directory outside of it");
  if (place.error != 0) refuse(std::strerror(place.error));
  if (!place.is_directory) refuse("it is not a directory; name an existing empty directory");
  if (!place.is_empty) refuse("it is not empty, and the mount would hide what is in it; name an empty directory");
  return place.path;
}

std::string fuse_options(const MountOptions& options) {
  std::string result = "subtype=escrow,default_permissions,fsname=" + escaped(options.source);
  if (options.allow_other) result += ",allow_other";
  if (options.read_only) result += ",ro";
  for (const std::string& option : options.extra_options) {
    if (!is_for_mount8(option)) result += "," + option;
  }
  return result;
}

void attach(fuse_session* session, const std::string& mountpoint, const MountOptions& options) {
  if (attach_directly(session, mountpoint, options)) return;
  if (fuse_session_mount(session, mountpoint.c_str()) != 0) {
    throw Error(Errc::unavailable, "cannot mount at " + mountpoint +
                                       ": fusermount3 refused or is not installed; install the package fuse3" +
                                       (options.allow_other ? ", and set user_allow_other in /etc/fuse.conf" : ""));
  }
}

bool unmount(const std::string& mountpoint, UnmountMode mode) {
  const int flags = UMOUNT_NOFOLLOW | (mode == UnmountMode::detach ? MNT_DETACH : 0);
  if (umount2(mountpoint.c_str(), flags) == 0) return true;
  if (errno != EPERM) return false;
  return run_fusermount(mountpoint, mode);
}

// mount(2) succeeds also where the path has become another directory's, and where another session has been mounted
// since the directory was found empty.
dev_t device_of_new_mount(const MountOptions& options) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Errc::unavailable, "cannot mount at " + options.mountpoint + ": " + why);
  };
  for (int left = kLooks;; --left) {
    const auto device = device_of(options.mountpoint);
    if (!device) refuse(std::string("the mount cannot be looked at: ") + std::strerror(errno));
    const std::vector<MountedPath> table = mounted_paths();
    const auto find = [&](const auto& is_it) { return std::find_if(table.begin(), table.end(), is_it); };
    const auto is_session = [](const MountedPath& mounted) { return mounted.type == kMountType; };
    const auto top = find([&](const MountedPath& mounted) { return mounted.device == *device && is_session(mounted); });
    const bool is_found = top != table.end();
    const auto below = find([&](const MountedPath& mounted) { return is_found && mounted.id == top->parent; });
    const bool is_on_session = below != table.end() && is_session(*below);
    if (is_found && top->source == options.source) {
      if (is_on_session) refuse("another session has just been mounted there");
      return *device;
    }
    // Another session came on top a moment ago, and is about to find that it lies on this one.
    const bool will_go = is_on_session && below->source == options.source && left > 0;
    if (!will_go) {
      refuse("the path does not lead to the new mount, as if something else had been mounted there or moved at the "
             "same time; try again, or name a directory of your own");
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

void detach_new_mount(const MountOptions& options) noexcept {
  try {
    for (const MountedPath& mounted : mounted_paths()) {
      const bool is_on_top = mounted.source == options.source && device_of(mounted.path) == mounted.device;
      // An older mount of the session is dead. The new one has not begun to answer.
      if (is_on_top && !is_dead_mount(mounted.path, kAnswerOfTheDead)) unmount(mounted.path, UnmountMode::detach);
    }
  } catch (const std::exception&) {
    // It stays as a dead mount, which the next command of the repository takes away.
  }
}

}  // namespace escrow::fuse
