#include "daemon/process/hardening.h"

#include <linux/close_range.h>
#include <linux/keyctl.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace escrow::daemon {
namespace {

constexpr unsigned kPutIntoConsole = 0x541c;  // TIOCLINUX: pastes a selection into a virtual console
constexpr std::uint64_t kRequestMask = 0xffffffff;  // the kernel reads 32 bits of an ioctl's request
// The modes in which this machine's processes can also make calls; the filter's own is there from the start.
constexpr std::uint32_t kOtherModes[] = {
#if defined(__x86_64__)
    SCMP_ARCH_X86, SCMP_ARCH_X32,
#elif defined(__aarch64__)
    SCMP_ARCH_ARM,
#endif
};

using Filter = std::unique_ptr<std::remove_pointer_t<scmp_filter_ctx>, decltype(&::seccomp_release)>;

int write_into(const std::string& bytes, int descriptor) {
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
  const Filter filter(::seccomp_init(SCMP_ACT_ALLOW), &::seccomp_release);
  if (!filter) return ENOMEM;
  int error = ::seccomp_attr_set(filter.get(), SCMP_FLTATR_API_SYSRAWRC, 1);  // the errno of seccomp(2)
  const auto unless_failed = [&](int result) { error = error != 0 ? error : result; };
  unless_failed(::seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_NNP, is_hostile ? 1 : 0));
  unless_failed(::seccomp_attr_set(filter.get(), SCMP_FLTATR_ACT_BADARCH,
                                   is_hostile ? SCMP_ACT_ERRNO(ENOSYS) : SCMP_ACT_ALLOW));
  if (!is_hostile)
    for (const std::uint32_t mode : kOtherModes) unless_failed(::seccomp_arch_add(filter.get(), mode));
  for (const unsigned request : {static_cast<unsigned>(TIOCSTI), kPutIntoConsole})
    unless_failed(::seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
                                     SCMP_A1(SCMP_CMP_MASKED_EQ, kRequestMask, request)));
  if (error != 0) return -error;
  error = ::seccomp_load(filter.get());
  if (error != -EACCES) return -error;
  // Without CAP_SYS_ADMIN a filter is for those who can gain nothing.
  error = ::seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_NNP, 1);
  return error != 0 ? -error : -::seccomp_load(filter.get());
}

int leave_callers_things(const std::vector<std::string>& data) {
  if (::close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) != 0) return errno;
  int descriptor = kFirstDataDescriptor;
  for (const std::string& bytes : data) {
    if (const int error = write_into(bytes, descriptor++)) return error;
  }
  // A kernel without keys has none to lose, and where a filter forbids the call it forbids it to the command, too.
  const bool is_new = ::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) >= 0;
  return is_new || errno == ENOSYS || errno == EPERM ? 0 : errno;
}

}  // namespace escrow::daemon
