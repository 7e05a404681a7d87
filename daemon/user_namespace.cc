#include "daemon/user_namespace.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "daemon/file_descriptor.h"
#include "session/error.h"

namespace escrow::daemon {
namespace {

constexpr int kCapSysAdmin = 21;  // linux/capability.h

session::Error unavailable(const std::string& message) { return session::Error(session::Errc::unavailable, message); }

bool has_sys_admin() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("CapEff:")) continue;
    return (std::strtoull(line.c_str() + 7, nullptr, 16) >> kCapSysAdmin & 1u) != 0;
  }
  return ::geteuid() == 0;
}

bool is_setuid_root(const std::string& path) {
  struct stat status;
  struct statvfs file_system;
  return ::stat(path.c_str(), &status) == 0 && (status.st_mode & S_ISUID) != 0 && status.st_uid == 0 &&
         ::access(path.c_str(), X_OK) == 0 && ::statvfs(path.c_str(), &file_system) == 0 &&
         (file_system.f_flag & ST_NOSUID) == 0;
}

bool has_helper() {
  const char* path = std::getenv("PATH");
  std::istringstream directories(std::string("/usr/bin:/bin:") + (path ? path : ""));
  for (std::string directory; std::getline(directories, directory, ':');) {
    if (is_setuid_root(directory + "/fusermount3")) return true;
  }
  return false;
}

// Whether /dev/fuse opens, and if not, why.
int open_error() {
  const FileDescriptor device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  return device ? 0 : errno;
}

void write_map(const char* path, const std::string& text) {
  const FileDescriptor file(::open(path, O_WRONLY | O_CLOEXEC));
  if (file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) return;
  throw unavailable(std::string("cannot mount as an ordinary user: writing ") + path + " failed: " +
                    std::strerror(errno));
}

}  // namespace

MountAccess find_mount_access() {
  const int error = open_error();
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
  return has_helper() ? MountAccess::helper : MountAccess::user_namespace;
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
