#include "daemon/process/memory_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "daemon/process/cgroup.h"

namespace escrow::daemon {
namespace {

// How long until the next look, at first: a container takes longer from having a cgroup to starting its process.
constexpr std::int64_t kLook_ms = 5;
// In the end: of a docker that makes its cgroups elsewhere nothing is ever seen.
constexpr std::int64_t kLastLook_ms = 1000;

enum class Counted { nothing, kill, gone };  // gone: with the cgroup

// From its beginning.
Counted count(int counters) {
  char text[4096];
  const ssize_t length = ::pread(counters, text, sizeof text, 0);
  if (length < 0) return Counted::gone;
  std::istringstream lines(std::string(text, static_cast<std::size_t>(length)));
  std::string key;
  for (std::uint64_t value; lines >> key >> value;) {
    if (key == "oom_kill") return value > 0 ? Counted::kill : Counted::nothing;
  }
  return Counted::nothing;
}

std::string first_word_of(const std::string& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
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

MemoryWatch::MemoryWatch(const std::string& file, FileSays says) : stopping_(::eventfd(0, EFD_CLOEXEC)) {
  start([this, file, says] {
    const std::string word = await([&] { return first_word_of(file); });
    if (says == FileSays::process) watch(static_cast<pid_t>(std::strtol(word.c_str(), nullptr, 10)));
    else watch(await([&] { return memory_counters_of_docker(word); }), -1);
  });
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

// Empty: it was stopped before.
std::string MemoryWatch::await(const std::function<std::string()>& look) const {
  const auto begun = std::chrono::steady_clock::now();
  while (true) {
    if (std::string found = look(); !found.empty()) return found;
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
    const std::int64_t next_ms = std::clamp<std::int64_t>(waited.count() / 100, kLook_ms, kLastLook_ms);
    pollfd stopping{stopping_.get(), POLLIN, 0};
    if (::poll(&stopping, 1, static_cast<int>(next_ms)) > 0) return {};
  }
}

void MemoryWatch::watch(pid_t process) {
  const FileDescriptor life(process > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, process, 0)) : -1);
  if (life) watch(memory_counters_of(process), life.get());
}

// `life` -1: until it is stopped, or the cgroup is gone.
void MemoryWatch::watch(const std::string& path, int life) {
  const FileDescriptor counters(path.empty() ? -1 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!counters) return;
  FileDescriptor events;
  pollfd all[3] = {{stopping_.get(), POLLIN, 0}, {life, POLLIN, 0}, changes_of(path, counters.get(), events)};
  int patience_ms = -1;
  while (true) {
    const Counted counted = count(counters.get());
    if (counted == Counted::kill) ran_out_ = true;
    if (counted != Counted::nothing || (all[0].revents | all[1].revents) != 0) return;
    ::poll(all, 3, patience_ms);
    if (all[2].revents == 0 || !events) continue;
    // Of version 1 the kernel tells before it kills and counts.
    std::uint64_t told = 0;
    if (::read(events.get(), &told, sizeof told) < 0) all[2].fd = -1;
    else patience_ms = static_cast<int>(kLook_ms);
  }
}

}  // namespace escrow::daemon
