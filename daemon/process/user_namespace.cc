#include "daemon/process/user_namespace.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "daemon/process/file_descriptor.h"
#include "session/base/error.h"

namespace escrow::daemon {
namespace {

constexpr int kCapSysAdmin = 21;  // linux/capability.h

session::Error unavailable(const std::string& message) { return session::Error(session::Errc::unavailable, message); }

bool is_setuid_root(const std::string& path) {
  struct stat status;
  struct statvfs file_system;
  return ::stat(path.c_str(), &status) == 0 && (status.st_mode & S_ISUID) != 0 && status.st_uid == 0 &&
         ::access(path.c_str(), X_OK) == 0 && ::statvfs(path.c_str(), &file_system) == 0 &&
         (file_system.f_flag & ST_NOSUID) == 0;
}

// The first word of a file of /proc; empty when there is none.
std::string setting(const char* path) {
  std::string value;
  std::ifstream(path) >> value;
  return value;
}

void write_map(const char* path, const std::string& text) {
  const FileDescriptor file(::open(path, O_WRONLY | O_CLOEXEC));
  if (file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) return;
  throw unavailable(std::string("cannot mount as an ordinary user: writing ") + path + " failed: " +
                    std::strerror(errno));
}

}  // namespace

bool has_sys_admin() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("CapEff:")) continue;
    return (std::strtoull(line.c_str() + 7, nullptr, 16) >> kCapSysAdmin & 1u) != 0;
  }
  return ::geteuid() == 0;
}

bool in_first_user_namespace() {
  // It alone maps every user; user_namespaces(7).
  std::uint64_t inside = 1, outside = 1, count = 0;
  std::ifstream("/proc/self/uid_map") >> inside >> outside >> count;
  return inside == 0 && outside == 0 && count == 4294967295u;
}

int fuse_device_error() {
  const FileDescriptor device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  return device ? 0 : errno;
}

Helper find_fusermount() {
  const char* path = std::getenv("PATH");
  std::istringstream directories(std::string("/usr/bin:/bin:") + (path ? path : ""));
  Helper found;
  for (std::string directory; std::getline(directories, directory, ':');) {
    const std::string program = directory + "/fusermount3";
    if (is_setuid_root(program)) return {.path = program, .is_setuid = true};
    if (found.path.empty() && ::access(program.c_str(), F_OK) == 0) found.path = program;
  }
  return found;
}

bool may_make_user_namespace() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 ? 0 : 1);
  int status = -1;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0;
}

std::string user_namespace_command() {
  if (setting("/proc/sys/user/max_user_namespaces") == "0") return "sudo sysctl -w user.max_user_namespaces=15000";
  if (setting("/proc/sys/kernel/unprivileged_userns_clone") == "0") {
    return "sudo sysctl -w kernel.unprivileged_userns_clone=1";
  }
  if (setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1") {
    return "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0";
  }
  return "";
}

MountAccess find_mount_access() {
  const int error = fuse_device_error();
  if (error == ENOENT || error == ENXIO || error == ENODEV) {
    throw unavailable("cannot mount: /dev/fuse is missing; load the fuse module (`modprobe fuse`), or give the "
                      "container the device (--device /dev/fuse)");
  }
  if (error == EPERM && has_sys_admin()) {
    throw unavailable("cannot mount: the container may not use /dev/fuse; start it with --device /dev/fuse");
  }
  if (error == 0 && has_sys_admin()) return MountAccess::direct;
  if (error != 0) {
    throw unavailable(std::string("cannot mount: /dev/fuse cannot be opened by this user: ") + std::strerror(error) +
                      "; run as root, or let the user open it (`chmod a+rw /dev/fuse`)");
  }
  return find_fusermount().is_setuid ? MountAccess::helper : MountAccess::user_namespace;
}

void enter_user_namespace() {
  const uid_t uid = ::geteuid();
  const gid_t gid = ::getegid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
    throw unavailable(std::string("cannot mount as an ordinary user: fusermount3 with its set-user-id bit is not "
                                  "installed, and the kernel gives no user namespace: ") +
                      std::strerror(errno) + "; install the package fuse3, or run as root");
  }
  write_map("/proc/self/setgroups", "deny");
  write_map("/proc/self/uid_map", std::to_string(uid) + " " + std::to_string(uid) + " 1");
  write_map("/proc/self/gid_map", std::to_string(gid) + " " + std::to_string(gid) + " 1");
}

}  // namespace escrow::daemon
