#include "daemon/cli/retry.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <thread>

#include "daemon/process/file_descriptor.h"
#include "session/base/error.h"

namespace escrow::daemon {
namespace {

constexpr std::chrono::milliseconds kLongestBackoff = std::chrono::minutes(5);

sigset_t watched_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::sigaddset(&set, number);
  return set;
}

[[noreturn]] void cannot_try() {
  throw session::Error(session::Errc::unavailable,
                       std::string("the run cannot be made in a process of its own: ") + std::strerror(errno));
}

// Who does not hear it ends with the status of the conflict.
void tell_to_go_on(const FileDescriptor& to) {
  const char mark = 'a';
  [[maybe_unused]] const ssize_t written = ::write(to.get(), &mark, 1);
}

// Where a file that is standard input is read from; nullopt: it is no file, and what was read of it is gone.
std::optional<off_t> input_position() {
  struct stat about {};
  if (::fstat(STDIN_FILENO, &about) != 0 || !S_ISREG(about.st_mode)) return std::nullopt;
  const off_t position = ::lseek(STDIN_FILENO, 0, SEEK_CUR);
  return position < 0 ? std::nullopt : std::optional(position);
}

// Of who asked to cancel when it was too late for the try under way.
int end_cancelled(int number) {
  const char* name = ::sigabbrev_np(number);
  std::fprintf(stderr, "escrow: cancelled by SIG%s: the command is not run again\n", name ? name : "?");
  return 128 + number;
}

// Waits for the end of the try, and stops and goes on with it. `cancelled_by`: the first signal that came meanwhile.
int status_of(pid_t child, const sigset_t& watched, int& cancelled_by) {
  for (;;) {
    siginfo_t info{};
    const int number = ::sigwaitinfo(&watched, &info);
    if (number > 0 && number != SIGCHLD) {
      if (cancelled_by == 0) cancelled_by = number;
      // What the terminal sends goes to the whole process group.
      if (info.si_code != SI_KERNEL) ::kill(child, number);
      continue;
    }
    int status = 0;
    if (::waitpid(child, &status, WNOHANG | WUNTRACED) != child) continue;
    if (WIFSTOPPED(status)) {
      ::raise(SIGSTOP);
      ::kill(child, SIGCONT);
    } else {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
  }
}

}  // namespace

std::chrono::milliseconds pause_before_retry(const Retries& retries, std::uint64_t number, std::uint64_t random) {
  std::chrono::milliseconds due = std::min(retries.backoff, kLongestBackoff);
  for (; number > 0 && due < kLongestBackoff && due.count() > 0; --number) due = std::min(2 * due, kLongestBackoff);
  const auto half = static_cast<std::uint64_t>(due.count()) / 2;
  return due - std::chrono::milliseconds(half == 0 ? 0 : random % (half + 1));
}

int run_with_retries(const Retries& retries, const std::function<int(std::uint64_t, bool&)>& attempt) {
  const sigset_t watched = watched_signals();
  const std::optional<off_t> input = input_position();
  for (std::uint64_t number = 0; number < retries.count; ++number) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) cannot_try();
    const FileDescriptor from_try(ends[0]);
    FileDescriptor to_us(ends[1]);
    sigset_t before;
    ::sigprocmask(SIG_BLOCK, &watched, &before);
    const pid_t self = ::getpid(), child = ::fork();
    if (child < 0) {
      const int error = errno;
      ::sigprocmask(SIG_SETMASK, &before, nullptr);
      errno = error;
      cannot_try();
    }
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      ::sigprocmask(SIG_SETMASK, &before, nullptr);
      if (::getppid() != self) ::raise(SIGTERM);
      bool again = false;
      const int status = attempt(retries.count - number, again);
      if (again) tell_to_go_on(to_us);
      return status;
    }
    to_us.reset();
    int cancelled_by = 0;
    const int status = status_of(child, watched, cancelled_by);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    char mark = 0;
    // Nothing: it has ended for good. A process that the try has left behind may still have the other end.
    ::fcntl(from_try.get(), F_SETFL, O_NONBLOCK);
    if (::read(from_try.get(), &mark, 1) != 1) return status;
    if (cancelled_by != 0) return end_cancelled(cancelled_by);
    std::this_thread::sleep_for(pause_before_retry(retries, number, std::random_device()()));
    if (input) ::lseek(STDIN_FILENO, *input, SEEK_SET);
  }
  bool again = false;
  return attempt(0, again);
}

}  // namespace escrow::daemon
