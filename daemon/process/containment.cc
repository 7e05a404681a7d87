#include "daemon/process/containment.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "daemon/process/descendants.h"

namespace escrow::daemon {
namespace {

constexpr const char* kNoMemoryLimit =
    "its memory cannot be limited: that takes a cgroup with the controller memory, of version 2 (on for the children "
    "of this process's cgroup, or of one above it) or of version 1, in which this user may make cgroups";
constexpr const char* kNoCpuLimit =
    "its processor time cannot be limited: that takes a cgroup with the controller cpu, of version 2 (on for the "
    "children of this process's cgroup, or of one above it) or of version 1, in which this user may make cgroups";
constexpr const char* kNoProcessLimit =
    "its processes cannot be limited: for a command of root that takes a cgroup with the controller pids, of version 2 "
    "(on for the children of this process's cgroup, or of one above it) or of version 1, in which this user may make "
    "cgroups";

}  // namespace

Containment::Containment(Method method, const Limits& limits, uid_t user) {
  become_subreaper();
  Cgroup::Limits missing{.memory_bytes = limits.memory_bytes, .processes = {}, .millicpus = limits.millicpus};
  if (limits.processes != 0) missing.processes = limits.processes;
  const bool needs_cgroup = limits.memory_bytes || limits.millicpus;
  if (method == Method::cgroup_if_possible || needs_cgroup) cgroups_ = Cgroup::make(missing);
  if (missing.memory_bytes) failure_ = kNoMemoryLimit;
  if (missing.millicpus) failure_ = kNoCpuLimit;
  if (!missing.processes) return;
  if (user == 0 && limits.needs_processes) failure_ = kNoProcessLimit;
  users_processes_ = limits.processes + tasks_of(user);
}

pid_t Containment::send_ahead() const {
  if (cgroups_.empty()) return 0;
  const pid_t ahead = ::fork();
  if (ahead == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    enter();
    ::_exit(0);
  }
  return std::max(ahead, 0);
}

int Containment::enter() const noexcept {
  for (const std::unique_ptr<Cgroup>& group : cgroups_) {
    // Without it the process tree still holds the command, but not its limits.
    if (::write(group->entrance(), "0", 1) < 0 && group->is_limited()) return errno;
  }
  if (!users_processes_) return 0;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NPROC, &limit) != 0) return errno;
  limit.rlim_max = std::min<rlim_t>(limit.rlim_max, *users_processes_);
  limit.rlim_cur = std::min(limit.rlim_cur, limit.rlim_max);
  return ::setrlimit(RLIMIT_NPROC, &limit) == 0 ? 0 : errno;
}

std::vector<std::string> Containment::cgroup_paths() const {
  std::vector<std::string> paths;
  for (const std::unique_ptr<Cgroup>& group : cgroups_) paths.push_back(group->path());
  return paths;
}

std::vector<pid_t> Containment::end_all(std::chrono::milliseconds patience) {
  for (const std::unique_ptr<Cgroup>& group : cgroups_) group->end_all(patience);
  // A command that runs as root can leave the cgroup, but not its ancestry.
  return end_descendants(patience);
}

bool Containment::ran_out_of_memory() const {
  return std::any_of(cgroups_.begin(), cgroups_.end(), [](const auto& group) { return group->ran_out_of_memory(); });
}

bool Containment::ran_out_of_processes() const {
  return std::any_of(cgroups_.begin(), cgroups_.end(),
                     [](const auto& group) { return group->refused_processes() > 0; });
}

}  // namespace escrow::daemon
