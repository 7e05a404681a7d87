#include "daemon/hardening.h"

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

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#elif defined(__riscv) && __riscv_xlen == 64
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_RISCV64;
#else
#error "the numbers of system calls of this architecture are not known here: add its AUDIT_ARCH_ constant"
#endif

constexpr std::uint32_t kForeignCalls = 0x40000000;  // of x86's x32 mode, which uses the same architecture
constexpr std::uint32_t kPutIntoConsole = 0x541c;    // TIOCLINUX: pastes a selection into a virtual console

// The calls of a 32-bit mode are not looked into, so there are none of them.
int forbid_typing_into_the_terminal() {
  const auto load = [](std::size_t offset) -> sock_filter {
    return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
  };
  constexpr std::uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM, kNone = SECCOMP_RET_ERRNO | ENOSYS;
  sock_filter program[] = {
      load(offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 0, 8),
      load(offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kForeignCalls, 6, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
      load(offsetof(seccomp_data, args) + sizeof(std::uint64_t)),  // the low half of the request, on little endian
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TIOCSTI, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kPutIntoConsole, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, kRefuse),
      BPF_STMT(BPF_RET | BPF_K, kNone),
  };
  sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0 ? 0 : errno;
}

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

int harden_process(const std::vector<std::string>& data) {
  if (::close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) != 0) return errno;
  int descriptor = kFirstDataDescriptor;
  for (const std::string& bytes : data) {
    if (const int error = hand_over(bytes, descriptor++)) return error;
  }
  // A kernel without keys has none to lose.
  if (::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) < 0 && errno != ENOSYS) return errno;
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  return forbid_typing_into_the_terminal();
}

}  // namespace escrow::daemon
