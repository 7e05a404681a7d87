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

// The kernel counts a kill right after its OOM event. Only the report that it prints in between can take long.
constexpr std::chrono::seconds kKill(10);
// The kernel signals the end of a cgroup from a queue of work, some time after the counter has gone.
constexpr int kEnd_ms = 1000;

struct Counted {
  bool has_killed;
  bool may_kill;  // false: the processes of the cgroup wait for memory instead (version 1)
};

// Reads the counters anew; std::nullopt: the file has gone with the cgroup.
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

// The number of processes that the kernel has killed for want of memory on the whole machine. The kernel counts a kill
// here first, and then for the cgroup.
std::uint64_t kills_of_the_machine() {
  std::ifstream lines("/proc/vmstat");
  std::string key;
  for (std::uint64_t value; lines >> key >> value;)
    if (key == "oom_kill") return value;
  return 0;
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

// The OOM events of a cgroup of version 1. The kernel signals one before it kills. At the end of the cgroup it signals
// each eventfd once more; no threshold of the usage is ever reached, so that `end_` is signalled then only.
class OomEvents {
 public:
  // The end is asked for first: at that end the kernel serves the last request first.
  OomEvents(const std::string& directory, int counters) {
    const FileDescriptor usage(::open((directory + "/memory.usage_in_bytes").c_str(), O_RDONLY | O_CLOEXEC));
    end_ = events_of(directory, usage.get(), " " + std::to_string(std::numeric_limits<std::int64_t>::max()));
    events_ = events_of(directory, counters, "");
  }

  int descriptor() const { return events_.get(); }
  // False: there was no signal.
  bool take() {
    std::uint64_t count = 0;
    if (::read(events_.get(), &count, sizeof count) < 0) return false;
    signals_ += count;
    last_ = std::chrono::steady_clock::now();
    return true;
  }
  // The counter was there and had no kill: the signals so far were OOM events. An old one led to no kill: memory was
  // freed in time, or it was the event of a cgroup above.
  void counter_had_no_kill() {
    is_open_ = (is_open_ || signals_ > 0) && std::chrono::steady_clock::now() - last_ < kKill;
    signals_ = 0;
  }
  // Whether the kill of the last event may still come.
  bool is_open() const { return is_open_; }
  // Once the counter has gone.
  bool is_open_at_the_end() {
    if (is_open_) return true;
    pollfd end{end_.get(), POLLIN, 0};
    ::poll(&end, 1, kEnd_ms);
    take();
    return signals_ > 1;
  }

 private:
  FileDescriptor events_, end_;
  std::uint64_t signals_ = 0;  // since the counter was there
  bool is_open_ = false;
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
  // The counters of version 2 can be polled themselves.
  std::optional<OomEvents> events;
  if (path.ends_with(kOldCounters)) events.emplace(path.substr(0, path.size() - kOldCounters.size()), counters.get());
  pollfd all[3] = {{stopping_.get(), POLLIN, 0},
                   {life, POLLIN, 0},
                   events ? pollfd{events->descriptor(), POLLIN, 0} : pollfd{counters.get(), POLLPRI, 0}};
  bool may_kill = true;
  std::uint64_t kills = kills_of_the_machine();  // before the last look
  while (true) {
    const std::uint64_t kills_now = kills_of_the_machine();
    const std::optional<Counted> counted = count(counters.get());
    if (!counted) {
      ran_out_ = events && may_kill && kills_now > kills && events->is_open_at_the_end();
      return;
    }
    ran_out_ = counted->has_killed;
    if (ran_out_ || (all[0].revents | all[1].revents) != 0) return;
    may_kill = counted->may_kill;
    kills = kills_now;
    if (events) events->counter_had_no_kill();
    ::poll(all, 3, events && events->is_open() ? static_cast<int>(kLook_ms) : -1);
    if (events && all[2].revents != 0 && !events->take()) all[2].fd = -1;
  }
}

}  // namespace escrow::daemon
