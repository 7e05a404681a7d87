#include "daemon/process/descriptor_limit.h"

#include <algorithm>

namespace escrow::daemon {

void allow_many_descriptors() noexcept { allow_descriptors(RLIM_INFINITY); }

void allow_descriptors(rlim_t count) noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min(count, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace escrow::daemon
