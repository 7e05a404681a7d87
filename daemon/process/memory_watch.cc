#include "daemon/process/memory_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cassert>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "daemon/process/cgroup.h"

namespace escrow::daemon {
namespace {

constexpr int kLookForFile_ms = 5;  // a container takes longer from having a process to starting it

// From its beginning: the descriptor stays at its counter when the cgroup's name is gone.
bool has_killed(int counters) {
  char text[4096];
  const ssize_t length = ::pread(counters, text, sizeof text, 0);
  std::istringstream lines(std::string(text, length > 0 ? static_cast<std::size_t>(length) : 0));
  std::string key;
  for (std::uint64_t value; lines >> key >> value;) {
    if (key == "oom_kill") return value > 0;
  }
  return false;
}

// Of version 1 the kernel tells by a descriptor of its own, of version 2 by the file.
pollfd changes_of(const std::string& path, int counters, FileDescriptor& events) {
  if (!path.ends_with("/memory.oom_control")) return {counters, POLLPRI, 0};
  events.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const std::string control = path.substr(0, path.rfind('/')) + "/cgroup.event_control";
  const FileDescriptor file(::open(control.c_str(), O_WRONLY | O_CLOEXEC));
  const std::string wish = std::to_string(events.get()) + " " + std::to_string(counters);
  const bool is_told = file && ::write(file.get(), wish.data(), wish.size()) > 0;
  return {is_told ? events.get() : -1, POLLIN, 0};
}

}  // namespace

MemoryWatch::MemoryWatch(pid_t process) : stopping_(::eventfd(0, EFD_CLOEXEC)) {
  start([this, process] { watch(process); });
}

MemoryWatch::MemoryWatch(const std::string& pid_file) : stopping_(::eventfd(0, EFD_CLOEXEC)) {
  start([this, pid_file] { watch(await_process(pid_file)); });
}

void MemoryWatch::start(std::function<void()> action) noexcept {
  if (!stopping_) return;
  try {
    thread_ = std::thread(std::move(action));
  } catch (const std::system_error&) {
    // As where nothing can be watched.
  }
}

MemoryWatch::~MemoryWatch() { finish(); }

bool MemoryWatch::finish() {
  if (!thread_.joinable()) return ran_out_;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t told = ::write(stopping_.get(), &one, sizeof one);
  assert(told == sizeof one);
  thread_.join();
  return ran_out_;
}

// 0: it was stopped before.
pid_t MemoryWatch::await_process(const std::string& pid_file) const {
  while (true) {
    pid_t process = 0;
    if (std::ifstream(pid_file) >> process) return process;
    pollfd stopping{stopping_.get(), POLLIN, 0};
    if (::poll(&stopping, 1, kLookForFile_ms) > 0) return 0;
  }
}

void MemoryWatch::watch(pid_t process) {
  const FileDescriptor life(process > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, process, 0)) : -1);
  const std::string path = life ? memory_counters_of(process) : std::string();
  const FileDescriptor counters(path.empty() ? -1 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!counters) return;
  FileDescriptor events;
  pollfd all[3] = {{stopping_.get(), POLLIN, 0}, {life.get(), POLLIN, 0}, changes_of(path, counters.get(), events)};
  while (true) {
    if (has_killed(counters.get())) ran_out_ = true;
    if (ran_out_ || (all[0].revents | all[1].revents) != 0) return;
    if (all[2].revents != 0 && events) {
      std::uint64_t count = 0;
      if (::read(events.get(), &count, sizeof count) < 0) all[2].fd = -1;
    }
    ::poll(all, 3, -1);
  }
}

}  // namespace escrow::daemon
