#include "tests/mount/run_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace escrow::test {

void EscrowRun::SetUp() {
  if (::access("/dev/fuse", R_OK | W_OK) != 0) {
    if (std::getenv("REQUIRE_FUSE")) FAIL() << "REQUIRE_FUSE is set and /dev/fuse cannot be opened";
    GTEST_SKIP() << "/dev/fuse cannot be opened";
  }
  shell("mkdir -p in/dir/sub && echo a > in/a.txt && echo b > in/dir/b.txt && echo c > in/dir/sub/c.txt",
        {.directory = directory_.path(), .environment = {}, .input = {}});
  ASSERT_EQ(escrow({"init"}).status, 0);
  const ProcessResult imported = escrow({"import", file("in"), "--message", "first import"});
  ASSERT_EQ(imported.status, 0) << imported.err;
}

std::vector<std::string> EscrowRun::run_command_line(const std::vector<std::string>& options,
                                                     const std::string& script) const {
  std::vector<std::string> line = {ESCROW_BINARY, "--repo", repository_, "run"};
  line.insert(line.end(), options.begin(), options.end());
  line.insert(line.end(), {"--", "sh", "-c", script});
  return line;
}

ProcessResult EscrowRun::run(const std::vector<std::string>& options, const std::string& script) {
  return run_process(run_command_line(options, script),
                     {.directory = directory_.path(), .environment = {{"OUT", directory_.path()}}, .input = {}});
}

ProcessResult EscrowRun::escrow(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--repo", repository_});
  return run_escrow(arguments, {.directory = directory_.path(), .environment = {}, .input = {}});
}

std::string EscrowRun::git(const std::string& arguments) const {
  return shell("git -c safe.directory='*' --git-dir '" + repository_ + "' " + arguments);
}

bool EscrowRun::is_in_head(const std::string& path) const {
  return shell("git -c safe.directory='*' --git-dir '" + repository_ + "' cat-file -e 'main:" + path +
               "' 2> /dev/null && echo yes || echo no") == "yes";
}

std::string EscrowRun::read(const std::string& name) const {
  std::ifstream stream(file(name), std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

bool EscrowRun::has(const std::string& name) const { return ::access(file(name).c_str(), F_OK) == 0; }

bool EscrowRun::eventually(const std::function<bool()>& condition) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::usleep(10'000);
  }
  return true;
}

bool EscrowRun::no_mount_left() const {
  std::ifstream table("/proc/self/mountinfo");
  for (std::string line; std::getline(table, line);) {
    if (line.find(directory_.path()) != std::string::npos) return false;
  }
  return true;
}

BackgroundRun::BackgroundRun(const std::vector<std::string>& command_line, const std::string& stderr_file)
    : pid_(::fork()) {
  if (pid_ != 0) return;
  ::setpgid(0, 0);
  const int fd = ::open(stderr_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::dup2(fd, 2);
  std::vector<char*> arguments;
  for (const std::string& argument : command_line) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

BackgroundRun::~BackgroundRun() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

int BackgroundRun::wait() {
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string last_line(const std::string& text) {
  std::istringstream lines(text);
  std::string last;
  for (std::string line; std::getline(lines, line);) last = line;
  return last;
}

}  // namespace escrow::test
