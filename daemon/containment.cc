#include "daemon/containment.h"

#include "daemon/descendants.h"

namespace escrow::daemon {

Containment::Containment(Method method) {
  become_subreaper();
  if (method == Method::cgroup_if_possible) cgroup_ = Cgroup::try_create();
}

void Containment::enter() const noexcept {
  // Where this fails the process tree still holds it.
  if (cgroup_ && ::write(cgroup_->entrance(), "0", 1) < 0) return;
}

std::vector<pid_t> Containment::end_all(std::chrono::milliseconds patience) {
  if (cgroup_) cgroup_->end_all(patience);
  // A command that runs as root can leave the cgroup, but not its ancestry.
  return end_descendants(patience);
}

}  // namespace escrow::daemon
