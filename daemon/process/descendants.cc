#include "daemon/process/descendants.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "daemon/process/file_descriptor.h"

namespace escrow::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kStopRounds = 20;

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

struct ProcessState {
  pid_t parent = 0;
  char state = '?';
};

// The third and fourth field of /proc/PID/stat, after the name, which may hold anything.
std::optional<ProcessState> state_of(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  char text[1024];
  const ssize_t length = ::read(file.get(), text, sizeof text - 1);
  if (length <= 0) return std::nullopt;
  text[length] = 0;
  const char* after_name = std::strrchr(text, ')');
  if (!after_name || std::strlen(after_name) < 5) return std::nullopt;
  return ProcessState{static_cast<pid_t>(std::atol(after_name + 4)), after_name[2]};
}

std::unordered_map<pid_t, pid_t> parents() {
  std::unordered_map<pid_t, pid_t> result;
  const std::unique_ptr<DIR, CloseDirectory> directory(::opendir("/proc"));
  if (!directory) return result;
  while (const dirent* entry = ::readdir(directory.get())) {
    const pid_t pid = static_cast<pid_t>(std::atol(entry->d_name));
    if (pid <= 0) continue;
    if (const auto state = state_of(pid)) result[pid] = state->parent;
  }
  return result;
}

// Signals `pid` only if it is still a descendant: the number may have gone to a stranger since it was listed.
void signal_descendant(pid_t pid, pid_t root, int signal_number) {
  const FileDescriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!handle) {
    if (errno == ENOSYS) ::kill(pid, signal_number);
    return;
  }
  pid_t ancestor = pid;
  while (ancestor != root) {
    const auto state = state_of(ancestor);
    if (!state || state->parent <= 1) break;
    ancestor = state->parent;
  }
  if (ancestor == root) ::syscall(SYS_pidfd_send_signal, handle.get(), signal_number, nullptr, 0);
}

// False when there is no child at all any more.
bool reap() {
  for (;;) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid > 0 || (pid < 0 && errno == EINTR)) continue;
    return pid == 0;
  }
}

// What is stopped cannot fork: afterwards the list is complete, but for those that are not ours to stop.
void stop_all(pid_t root) {
  std::set<pid_t> stopped;
  for (int round = 0; round < kStopRounds; ++round) {
    bool found = false;
    for (const pid_t pid : descendants_of(root)) {
      if (!stopped.insert(pid).second) continue;
      signal_descendant(pid, root, SIGSTOP);
      found = true;
    }
    if (!found) return;
  }
}

void pause_for(milliseconds duration) {
  const timespec wait{duration.count() / 1000, (duration.count() % 1000) * 1'000'000};
  ::nanosleep(&wait, nullptr);
}

}  // namespace

void become_subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

std::vector<pid_t> descendants_of(pid_t root) {
  const std::unordered_map<pid_t, pid_t> parent_of = parents();
  std::unordered_map<pid_t, std::vector<pid_t>> children_of;
  for (const auto& [pid, parent] : parent_of) children_of[parent].push_back(pid);
  std::vector<pid_t> found;
  std::vector<pid_t> pending{root};
  while (!pending.empty()) {
    const pid_t next = pending.back();
    pending.pop_back();
    for (const pid_t child : children_of[next]) {
      found.push_back(child);
      pending.push_back(child);
    }
  }
  return found;
}

std::uint64_t tasks_of(uid_t user) {
  std::uint64_t count = 0;
  const std::unique_ptr<DIR, CloseDirectory> directory(::opendir("/proc"));
  while (const dirent* entry = directory ? ::readdir(directory.get()) : nullptr) {
    if (std::atol(entry->d_name) <= 0) continue;
    struct stat status;
    const std::string tasks = std::string(entry->d_name) + "/task";
    if (::fstatat(::dirfd(directory.get()), entry->d_name, &status, 0) != 0 || status.st_uid != user) continue;
    // A directory of each; the two others are `.` and `..`.
    if (::fstatat(::dirfd(directory.get()), tasks.c_str(), &status, 0) == 0) count += status.st_nlink - 2;
  }
  return count;
}

std::vector<pid_t> end_descendants(milliseconds patience) {
  const pid_t self = ::getpid();
  const auto deadline = steady_clock::now() + patience;
  milliseconds wait(1);
  while (reap()) {
    stop_all(self);
    const std::vector<pid_t> remaining = descendants_of(self);
    for (const pid_t pid : remaining) signal_descendant(pid, self, SIGKILL);
    if (!reap()) return {};
    if (steady_clock::now() >= deadline) return descendants_of(self);
    pause_for(wait);
    wait = std::min(wait * 2, milliseconds(20));
  }
  return {};
}

}  // namespace escrow::daemon
