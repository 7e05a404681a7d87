// Runs under a terminal of its own: a shell with job control that starts a run, as a person's does.
#include "daemon/terminal.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/runner.h"
#include "tests/daemon/process_helpers.h"

namespace escrow::daemon {
namespace {

using tests::eventually;
using tests::ScratchDirectory;

// A process that leads a session on a new terminal and plays the part of the shell: it starts the run as a job in the
// foreground, and reports the job's state changes by lines on the terminal.
class TerminalRun : public testing::Test {
 protected:
  void start(const std::string& script) {
    leader_ = ::forkpty(&master_, nullptr, nullptr, nullptr);
    ASSERT_GE(leader_, 0);
    if (leader_ == 0) play_shell(script);
  }
  ~TerminalRun() override {
    if (leader_ > 0) {
      ::kill(leader_, SIGKILL);
      ::close(master_);
      ::waitpid(leader_, nullptr, 0);
    }
  }

  void type(const std::string& keys) { ASSERT_EQ(::write(master_, keys.data(), keys.size()), ssize_t(keys.size())); }

  // Waits until the terminal shows `text`, counting from what was seen before.
  bool shows(const std::string& text) {
    const bool found = eventually([&] {
      pollfd descriptor{master_, POLLIN, 0};
      char bytes[4096];
      while (::poll(&descriptor, 1, 0) > 0) {
        const ssize_t length = ::read(master_, bytes, sizeof bytes);
        if (length <= 0) break;
        screen_.append(bytes, static_cast<std::size_t>(length));
      }
      return screen_.find(text, seen_) != std::string::npos;
    });
    if (found) seen_ = screen_.find(text, seen_) + text.size();
    return found;
  }

  [[noreturn]] void play_shell(const std::string& script) {
    ::signal(SIGTTOU, SIG_IGN);
    const pid_t job = ::fork();
    if (job == 0) {
      ::setpgid(0, 0);
      ::tcsetpgrp(STDIN_FILENO, ::getpid());
      ::signal(SIGTTOU, SIG_DFL);
      ::_exit(play_job(script));
    }
    ::setpgid(job, job);
    ::tcsetpgrp(STDIN_FILENO, job);
    for (int status = 0; ::waitpid(job, &status, WUNTRACED) == job;) {
      if (!WIFSTOPPED(status)) {
        ::dprintf(STDOUT_FILENO, "job ended %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
        break;
      }
      ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
      ::dprintf(STDOUT_FILENO, "job stopped\n");
      char line[16];
      if (::read(STDIN_FILENO, line, sizeof line) <= 0) break;  // any line means fg
      ::tcsetpgrp(STDIN_FILENO, job);
      ::kill(-job, SIGCONT);
    }
    ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
    ::dprintf(STDOUT_FILENO, "echo %s\n", is_echoing() ? "on" : "off");
    ::pause();
    ::_exit(0);
  }

  int play_job(const std::string& script) {
    Runner runner;
    const CommandEnd end = runner.run(tests::shell(script, scratch_.path()));
    const bool ours = ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
    ::dprintf(STDOUT_FILENO, "cause %d signal %d terminal %s\n", static_cast<int>(end.cause), end.signal_number,
              ours ? "ours" : "lost");
    return end.cause == EndCause::exited ? end.status : 99;
  }

  static bool is_echoing() {
    termios modes;
    return ::tcgetattr(STDIN_FILENO, &modes) == 0 && (modes.c_lflag & ECHO) != 0;
  }

  ScratchDirectory scratch_;
  pid_t leader_ = -1;
  int master_ = -1;
  std::string screen_;
  std::size_t seen_ = 0;
};

TEST_F(TerminalRun, TheCommandIsInTheForegroundAndReadsTheKeyboard) {
  start("echo ready; read line; echo \"got $line\"; exit 7");
  ASSERT_TRUE(shows("ready")) << screen_;
  type("hello\n");
  EXPECT_TRUE(shows("got hello")) << screen_;
  EXPECT_TRUE(shows("terminal ours")) << screen_;
  EXPECT_TRUE(shows("job ended 7")) << screen_;
}

TEST_F(TerminalRun, ControlCReachesTheCommandAlone) {
  start("trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.05; done");
  ASSERT_TRUE(shows("ready")) << screen_;
  type("\x03");
  EXPECT_TRUE(shows("interrupted")) << screen_;
  EXPECT_TRUE(shows("cause 0 ")) << screen_;
  EXPECT_TRUE(shows("job ended 3")) << screen_;
}

TEST_F(TerminalRun, ControlCKillsACommandThatDoesNotCatchIt) {
  start("echo ready; exec sleep 1000");
  ASSERT_TRUE(shows("ready")) << screen_;
  type("\x03");
  EXPECT_TRUE(shows("cause 1 signal 2 terminal ours")) << screen_;
}

TEST_F(TerminalRun, ControlZStopsTheWholeJobAndFgContinuesIt) {
  start("echo ready; read line; echo \"got $line\"");
  ASSERT_TRUE(shows("ready")) << screen_;
  ::usleep(50'000);
  type("\x1a");
  ASSERT_TRUE(shows("job stopped")) << screen_;
  type("fg\n");
  ::usleep(300'000);
  type("after\n");
  EXPECT_TRUE(shows("got after")) << screen_;
  EXPECT_TRUE(shows("terminal ours")) << screen_;
  EXPECT_TRUE(shows("job ended 0")) << screen_;
}

TEST_F(TerminalRun, ControlZTwice) {
  start("echo ready; read line; echo \"got $line\"");
  ASSERT_TRUE(shows("ready")) << screen_;
  for (int round = 0; round < 2; ++round) {
    ::usleep(300'000);
    type("\x1a");
    ASSERT_TRUE(shows("job stopped")) << screen_;
    type("fg\n");
  }
  ::usleep(300'000);
  type("after\n");
  EXPECT_TRUE(shows("got after")) << screen_;
}

TEST_F(TerminalRun, TheCommandHearsOfANewWindowSize) {
  start("trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done");
  ASSERT_TRUE(shows("ready")) << screen_;
  const winsize size{41, 133, 0, 0};
  ASSERT_EQ(::ioctl(master_, TIOCSWINSZ, &size), 0);
  EXPECT_TRUE(shows("41 133")) << screen_;
  EXPECT_TRUE(shows("job ended 0")) << screen_;
}

TEST_F(TerminalRun, ModesThatTheCommandLeftBehindAreRestored) {
  start("stty -echo raw; kill -9 $$");
  EXPECT_TRUE(shows("terminal ours")) << screen_;
  EXPECT_TRUE(shows("echo on")) << screen_;
}

TEST_F(TerminalRun, AnInteractiveShellHasJobControl) {
  start("exec bash --norc --noprofile -i");
  type("set -o | grep monitor; echo in-$((40+2))\n");
  EXPECT_TRUE(shows("in-42")) << screen_;
  EXPECT_NE(screen_.find("on"), std::string::npos);
  EXPECT_EQ(screen_.find("no job control"), std::string::npos) << screen_;
  type("sleep 1000\n");
  ::usleep(300'000);
  type("\x03");
  type("exit 5\n");
  EXPECT_TRUE(shows("job ended 5")) << screen_;
}

}  // namespace
}  // namespace escrow::daemon
