#include "daemon/containment.h"

#include <cerrno>

#include "daemon/descendants.h"

namespace escrow::daemon {

Containment::Containment(Method method, const std::optional<std::uint64_t>& memory_bytes)
    : is_limited_(memory_bytes.has_value()) {
  become_subreaper();
  if (memory_bytes) {
    cgroup_ = Cgroup::try_create_limited(*memory_bytes, failure_);
  } else if (method == Method::cgroup_if_possible) {
    cgroup_ = Cgroup::try_create();
  }
}

int Containment::enter() const noexcept {
  if (!cgroup_ || ::write(cgroup_->entrance(), "0", 1) >= 0) return 0;
  // Without it the process tree still holds the command, but not its memory.
  return is_limited_ ? errno : 0;
}

std::vector<pid_t> Containment::end_all(std::chrono::milliseconds patience) {
  if (cgroup_) cgroup_->end_all(patience);
  // A command that runs as root can leave the cgroup, but not its ancestry.
  return end_descendants(patience);
}

}  // namespace escrow::daemon
