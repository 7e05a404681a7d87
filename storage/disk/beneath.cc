#include "storage/disk/beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace escrow::storage {

namespace {

constexpr int kMostRaces = 128;  // renames elsewhere that the kernel cannot tell from one that leads out: EAGAIN

}  // namespace

UniqueFd open_beneath(int directory, const char* path, int flags, std::uint64_t mode) noexcept {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_NOFOLLOW | O_CLOEXEC);
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  for (int attempt = 0;; ++attempt) {
    UniqueFd opened(static_cast<int>(::syscall(SYS_openat2, directory, path, &how, sizeof how)));
    if (opened || (errno != EINTR && (errno != EAGAIN || attempt >= kMostRaces))) return opened;
  }
}

}  // namespace escrow::storage
