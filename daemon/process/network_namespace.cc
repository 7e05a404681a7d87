#include "daemon/process/network_namespace.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "daemon/process/file_descriptor.h"

namespace escrow::daemon {
namespace {

constexpr std::array kKept = {CAP_CHOWN,      CAP_DAC_OVERRIDE, CAP_FOWNER,     CAP_FSETID,           CAP_KILL,
                              CAP_SETGID,     CAP_SETUID,       CAP_SETPCAP,    CAP_NET_BIND_SERVICE, CAP_NET_RAW,
                              CAP_SYS_CHROOT, CAP_AUDIT_WRITE,  CAP_SETFCAP};

std::uint64_t kept_capabilities() {
  std::uint64_t kept = 0;
  for (const int capability : kKept) kept |= std::uint64_t{1} << capability;
  return kept;
}

int write_setting(const char* path, const std::string& text) {
  const FileDescriptor file(::open(path, O_WRONLY | O_CLOEXEC));
  if (!file) return errno;
  return ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : errno;
}

int enter_user_and_network_namespace() {
  const std::string uid = std::to_string(::geteuid()), gid = std::to_string(::getegid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return errno;
  if (const int error = write_setting("/proc/self/setgroups", "deny")) return error;
  if (const int error = write_setting("/proc/self/uid_map", uid + " " + uid + " 1")) return error;
  return write_setting("/proc/self/gid_map", gid + " " + gid + " 1");
}

int turn_loopback_on() {
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return errno;
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  if (::ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0) return errno;
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
  return ::ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0 ? 0 : errno;
}

}  // namespace

int leave_network() {
  if (::unshare(CLONE_NEWNET) != 0) {
    if (errno != EPERM) return errno;
    if (const int error = enter_user_and_network_namespace()) return error;
  }
  return turn_loopback_on();
}

int give_up_ways_back() {
  const std::uint64_t kept = kept_capabilities();
  for (int capability = 0; capability < 64; ++capability) {
    const int is_there = ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0);
    if (is_there < 0) break;  // the kernel has no more
    if (is_there == 0 || (kept >> capability & 1) != 0) continue;
    if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) return errno;
  }
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);  // an older kernel has none
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2];
  if (::syscall(SYS_capget, &header, sets) != 0) return errno;
  for (int half = 0; half < 2; ++half) {
    const auto mask = static_cast<std::uint32_t>(kept >> (32 * half));
    sets[half].effective &= mask;
    sets[half].permitted &= mask;
    sets[half].inheritable &= mask;
  }
  return ::syscall(SYS_capset, &header, sets) == 0 ? 0 : errno;
}

int try_to_leave_network() {
  const pid_t child = ::fork();
  if (child < 0) return errno;
  if (child == 0) ::_exit(leave_network());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

}  // namespace escrow::daemon
