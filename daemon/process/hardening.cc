#include "daemon/process/hardening.h"

#include <linux/audit.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace escrow::daemon {
namespace {

// kForeignIoctl is that of the 32-bit mode.
#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64, kForeignIoctl = 54;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64, kForeignIoctl = 54;
#elif defined(__riscv) && __riscv_xlen == 64
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_RISCV64, kForeignIoctl = 29;
#else
#error "the numbers of system calls of this architecture are not known here: add its AUDIT_ARCH_ constant"
#endif

constexpr std::uint32_t kX32Calls = 0x40000000;            // x86's x32 mode uses the same architecture
constexpr std::uint32_t kX32Ioctl = kX32Calls | 514;
constexpr std::uint32_t kPutIntoConsole = 0x541c;          // TIOCLINUX: pastes a selection into a virtual console

int hand_over(const std::string& bytes, int descriptor) {
  const int file = ::memfd_create("escrow", MFD_CLOEXEC);
  if (file < 0) return errno;
  for (std::size_t written = 0; written < bytes.size();) {
    const ssize_t count = ::write(file, bytes.data() + written, bytes.size() - written);
    if (count < 0) return errno;
    written += static_cast<std::size_t>(count);
  }
  if (::lseek(file, 0, SEEK_SET) != 0 || ::dup2(file, descriptor) < 0) return errno;
  return 0;
}

}  // namespace

int forbid_typing_into_the_terminal(Trust trust) {
  const bool is_hostile = trust == Trust::hostile;
  const auto load = [](std::size_t offset) -> sock_filter {
    return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
  };
  constexpr std::uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM, kNone = SECCOMP_RET_ERRNO | ENOSYS;
  sock_filter program[] = {
      load(offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 2, 0),
      load(offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kForeignIoctl, static_cast<std::uint8_t>(is_hostile ? 9 : 4), 9),
      load(offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kX32Ioctl, static_cast<std::uint8_t>(is_hostile ? 6 : 1), 0),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kX32Calls, 5, 3),
      load(offsetof(seccomp_data, args) + sizeof(std::uint64_t)),  // the low half of the request, on little endian
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TIOCSTI, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kPutIntoConsole, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, kRefuse),
      BPF_STMT(BPF_RET | BPF_K, is_hostile ? kNone : SECCOMP_RET_ALLOW),  // a call of another mode
  };
  sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  const auto gain_nothing = [] { return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0; };
  if (is_hostile && !gain_nothing()) return errno;
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0) return 0;
  // Without CAP_SYS_ADMIN a filter is for those who can gain nothing.
  if (errno != EACCES || !gain_nothing()) return errno;
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0 ? 0 : errno;
}

int leave_callers_things(const std::vector<std::string>& data) {
  if (::close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) != 0) return errno;
  int descriptor = kFirstDataDescriptor;
  for (const std::string& bytes : data) {
    if (const int error = hand_over(bytes, descriptor++)) return error;
  }
  // A kernel without keys has none to lose, and where a filter forbids the call it forbids it to the command, too.
  const bool is_new = ::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) >= 0;
  return is_new || errno == ENOSYS || errno == EPERM ? 0 : errno;
}

}  // namespace escrow::daemon
