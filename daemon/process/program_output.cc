#include "daemon/process/program_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <sstream>

#include "daemon/process/file_descriptor.h"
#include "session/base/error.h"

namespace escrow::daemon {
namespace {

using std::chrono::steady_clock;

struct Pipe {
  FileDescriptor read_end, write_end;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw session::Error(session::Errc::unavailable, std::string("a pipe cannot be made: ") + std::strerror(errno));
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
  }
};

// At most a minute.
int milliseconds_until(steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

// False at the end.
bool take_some(int descriptor, std::string& into, std::size_t most_bytes,
               const std::function<void(std::string_view)>& hear = {}) {
  char buffer[4096];
  const ssize_t size = ::read(descriptor, buffer, sizeof buffer);
  if (size < 0 && errno == EINTR) return true;
  if (size <= 0) return false;
  if (hear) hear({buffer, static_cast<std::size_t>(size)});
  else into.append(buffer, std::min(static_cast<std::size_t>(size), most_bytes - into.size()));
  return true;
}

void take_all(Pipe& out, Pipe& err, ProgramOutput& output, pid_t program, const ProgramOptions& options) {
  const std::size_t most = options.most_bytes;
  int until = options.until;
  auto deadline = options.deadline;
  while (out.read_end || err.read_end) {
    pollfd all[3] = {{out.read_end.get(), POLLIN, 0}, {err.read_end.get(), POLLIN, 0}, {until, POLLIN, 0}};
    if (::poll(all, 3, milliseconds_until(deadline)) < 0) continue;
    if (all[0].revents != 0 && !take_some(out.read_end.get(), output.out, most, options.hear)) out.read_end.reset();
    if (all[1].revents != 0 && !take_some(err.read_end.get(), output.err, most)) err.read_end.reset();
    if (all[2].revents == 0 && steady_clock::now() < deadline) continue;
    ::kill(-program, SIGKILL);  // with what it has started
    until = -1;
    deadline = kNoDeadline;
  }
}

class SpawnAttributes {
 public:
  SpawnAttributes(int out, int err, const ProgramOptions& options) {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
    // Onto itself: that takes its close-on-exec flag away (posix_spawn_file_actions_adddup2(3)).
    if (options.lock >= 0) ::posix_spawn_file_actions_adddup2(&actions, options.lock, options.lock);
    ::posix_spawnattr_init(&attributes);
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    const bool is_apart = options.until >= 0 || options.deadline != kNoDeadline || options.lock >= 0;
    const int apart = is_apart ? POSIX_SPAWN_SETSID : 0;  // also a group of its own
    ::posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | apart));
  }
  ~SpawnAttributes() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

}  // namespace

std::string ProgramOutput::complaint() const {
  std::istringstream lines(err.empty() ? out : err);
  std::string first, line;
  while (std::getline(lines, line)) {
    if (first.empty()) first = line;
    // Both runtimes warn of other things before they say why.
    if (!line.starts_with("WARNING") && line.find("level=warning") == std::string::npos) return line;
  }
  return first;
}

ProgramOutput run_program(const std::vector<std::string>& arguments, const ProgramOptions& options) {
  std::vector<char*> words;
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  Pipe out, err;
  pid_t pid = -1;
  {
    const SpawnAttributes spawn(out.write_end.get(), err.write_end.get(), options);
    const int error = ::posix_spawnp(&pid, words[0], &spawn.actions, &spawn.attributes, words.data(), environ);
    if (error == ENOENT) return {.status = 127, .out = {}, .err = arguments.front() + " is not installed"};
    if (error != 0)
      throw session::Error(session::Errc::unavailable, arguments.front() + " cannot be run: " + std::strerror(error));
  }
  out.write_end.reset();
  err.write_end.reset();
  ProgramOutput output;
  take_all(out, err, output, pid, options);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  output.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

}  // namespace escrow::daemon
