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
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "daemon/process/cgroup.h"

namespace escrow::daemon {
namespace {

// How long until the next look, at first: a container takes longer from having a cgroup to starting its process.
constexpr std::int64_t kLook_ms = 5;
// In the end: of a docker that makes its cgroups elsewhere nothing is ever seen.
constexpr std::int64_t kLastLook_ms = 1000;

// The kernel counts a kill after it has told of the want of memory, and reported the kill, which a slow console delays.
constexpr std::chrono::seconds kKill(10);
// The kernel tells of the end of a cgroup from a queue of work, some time after the counter has gone.
constexpr int kEnd_ms = 1000;

struct Counted {
  bool has_killed;
  bool may_kill;  // of version 1: a cgroup can be told to let its processes wait instead
};

// From its beginning; nothing: it has gone with the cgroup.
std::optional<Counted> count(int counters) {
  char text[4096];
  const ssize_t length = ::pread(counters, text, sizeof text, 0);
  if (length < 0) return std::nullopt;
  Counted counted{.has_killed = false, .may_kill = true};
  std::istringstream lines(std::string(text, static_cast<std::size_t>(length)));
  std::string key;
  for (std::uint64_t value; lines >> key >> value;) {
    if (key == "oom_kill") counted.has_killed = value > 0;
    if (key == "oom_kill_disable") counted.may_kill = value == 0;
  }
  return counted;
}

std::string first_word_of(const std::string& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

// An eventfd that the kernel signals for what is asked of `file`, and at the end of the cgroup.
FileDescriptor events_of(const std::string& directory, int file, const std::string& request) {
  FileDescriptor events(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const FileDescriptor control(::open((directory + "/cgroup.event_control").c_str(), O_WRONLY | O_CLOEXEC));
  const std::string line = std::to_string(events.get()) + " " + std::to_string(file) + request;
  const bool is_told = events && control && ::write(control.get(), line.data(), line.size()) > 0;
  if (!is_told) events.reset();
  return events;
}

// The wants of memory in a cgroup of version 1. The kernel tells of one right before it kills and counts; a kill right
// before the cgroup's end leaves nothing else.
class Wants {
 public:
  // The end is asked for first: at that end the kernel serves the last request first.
  Wants(const std::string& directory, int counters) {
    const FileDescriptor usage(::open((directory + "/memory.usage_in_bytes").c_str(), O_RDONLY | O_CLOEXEC));
    end_ = events_of(directory, usage.get(), " " + std::to_string(std::numeric_limits<std::int64_t>::max()));
    wants_ = events_of(directory, counters, "");
  }

  int descriptor() const { return wants_.get(); }
  // False: nothing was told.
  bool take() {
    is_fresh();
    std::uint64_t count = 0;
    if (::read(wants_.get(), &count, sizeof count) < 0) return false;
    told_ += count;
    last_ = std::chrono::steady_clock::now();
    return true;
  }
  // Whether a kill may still follow. A want that no kill followed was met otherwise, or was that of a cgroup above.
  bool is_fresh() {
    if (told_ > 0 && std::chrono::steady_clock::now() - last_ > kKill) told_ = 0;
    return told_ > 0;
  }
  // Once the counter has gone: whether a fresh want came before. The kernel signals `wants_` once for the end, too.
  bool came_before_the_end() {
    pollfd end{end_.get(), POLLIN, 0};
    if (!wants_ || !end_ || ::poll(&end, 1, kEnd_ms) <= 0) return false;
    take();
    return told_ > 1;
  }

 private:
  FileDescriptor wants_, end_;
  std::uint64_t told_ = 0;
  std::chrono::steady_clock::time_point last_;
};

constexpr std::string_view kOldCounters = "/memory.oom_control";

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
  // Of version 2 the file itself tells.
  std::optional<Wants> wants;
  if (path.ends_with(kOldCounters)) wants.emplace(path.substr(0, path.size() - kOldCounters.size()), counters.get());
  pollfd all[3] = {{stopping_.get(), POLLIN, 0},
                   {life, POLLIN, 0},
                   wants ? pollfd{wants->descriptor(), POLLIN, 0} : pollfd{counters.get(), POLLPRI, 0}};
  for (bool may_kill = true;;) {
    const std::optional<Counted> counted = count(counters.get());
    if (counted) may_kill = counted->may_kill;
    ran_out_ = counted ? counted->has_killed : wants && may_kill && wants->came_before_the_end();
    if (ran_out_ || !counted || (all[0].revents | all[1].revents) != 0) return;
    ::poll(all, 3, wants && wants->is_fresh() ? static_cast<int>(kLook_ms) : -1);
    if (wants && all[2].revents != 0 && !wants->take()) all[2].fd = -1;
  }
}

}  // namespace escrow::daemon
