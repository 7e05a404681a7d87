#include "fuse/helper_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "session/base/error.h"
#include "session/base/synchronized.h"

namespace escrow::fuse {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kBegin = 'b', kDone = 'd';

// Those that were killed while they waited in the kernel, and are to be reaped when they have ended.
session::Synchronized<std::vector<pid_t>>& late_ones() {
  static session::Synchronized<std::vector<pid_t>> late;
  return late;
}

[[noreturn]] void refuse_helper(const char* what) {
  throw session::Error(session::Errc::unavailable, std::string("no helper process could be started: ") + what +
                                                       ": " + std::strerror(errno) + "; try again");
}

// "7f7e3e428000-7f7e3e429000 rw-s ... anon_inode:[io_uring]", a line of /proc/PID/maps.
void unmap_if_ring(std::string_view line) noexcept {
  if (!line.ends_with("anon_inode:[io_uring]")) return;
  std::uintptr_t begin = 0, end = 0;
  const auto dash = std::from_chars(line.data(), line.data() + line.size(), begin, 16);
  std::from_chars(dash.ptr + 1, line.data() + line.size(), end, 16);
  ::munmap(reinterpret_cast<void*>(begin), end - begin);
}

// A mapping of a ring keeps it, and with it the connection of a mount, after the host has died: whoever waits for the
// mount would then wait for ever. Without /proc nothing is done.
void let_go_of_rings() noexcept {
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return;
  std::array<char, 4096> read_now;
  std::array<char, 256> line;  // that of a ring is shorter
  std::size_t length = 0;
  for (ssize_t size = 0; (size = ::read(maps, read_now.data(), read_now.size())) > 0;) {
    for (const char letter : std::string_view(read_now.data(), static_cast<std::size_t>(size))) {
      if (letter == '\n') {
        unmap_if_ring({line.data(), std::min(length, line.size())});
        length = 0;
      } else {
        if (length < line.size()) line[length] = letter;
        ++length;
      }
    }
  }
  ::close(maps);
}

[[noreturn]] void run(int socket, pid_t host, const HelperProcess::Work& work) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::getppid() != host) ::_exit(1);
  ::prctl(PR_SET_NAME, "escrow-helper", 0, 0, 0);
  const auto own = static_cast<unsigned>(socket);
  if (own > 0) ::close_range(0, own - 1, 0);
  ::close_range(own + 1, ~0u, 0);
  let_go_of_rings();
  // The host's end is the host's alone by now: without a host this ends.
  char begin = 0;
  ssize_t got = 0;
  do {
    got = ::read(socket, &begin, 1);
  } while (got < 0 && errno == EINTR);
  if (got != 1 || begin != kBegin) ::_exit(1);
  work(HelperProcess::Report(socket));
  ::send(socket, &kDone, 1, MSG_NOSIGNAL);
  ::_exit(0);
}

// Milliseconds for poll(2), which may end before the deadline.
int left_until(steady_clock::time_point deadline) {
  if (deadline == steady_clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
}

}  // namespace

void HelperProcess::Report::add(const void* bytes, std::size_t size) const noexcept {
  ::send(socket_, bytes, size, MSG_NOSIGNAL);
}

HelperProcess::HelperProcess(const Work& work) {
  std::erase_if(*late_ones().lock(), [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) refuse_helper("socketpair");
  // No handler of this process runs in it.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t host = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) run(ends[1], host, work);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::close(ends[1]);
  socket_ = ends[0];
  if (pid_ < 0) {
    ::close(socket_);
    errno = error;
    refuse_helper("fork");
  }
}

HelperProcess::~HelperProcess() {
  ::close(socket_);
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  reap(WNOHANG);
  if (pid_ != 0) late_ones().lock()->push_back(pid_);
}

void HelperProcess::reap(int how) {
  pid_t ended = 0;
  do {
    ended = ::waitpid(pid_, nullptr, how);
  } while (ended < 0 && errno == EINTR);
  if (ended != 0) pid_ = 0;
}

std::optional<std::vector<std::string>> HelperProcess::finish(milliseconds patience) {
  const auto deadline =
      patience == kForEver ? steady_clock::time_point::max() : steady_clock::now() + patience;
  if (::send(socket_, &kBegin, 1, MSG_NOSIGNAL) != 1) return std::nullopt;
  std::vector<std::string> reported;
  std::vector<char> message(kMaxMessage_bytes);
  for (;;) {
    pollfd watched{socket_, POLLIN, 0};
    const int ready = ::poll(&watched, 1, left_until(deadline));
    if (ready == 0 && steady_clock::now() >= deadline) return std::nullopt;
    if (ready <= 0) continue;
    const ssize_t size = ::recv(socket_, message.data(), message.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return std::nullopt;
    if (size == 1 && message.front() == kDone) break;
    reported.emplace_back(message.data(), static_cast<std::size_t>(size));
  }
  reap(0);
  return reported;
}

}  // namespace escrow::fuse
