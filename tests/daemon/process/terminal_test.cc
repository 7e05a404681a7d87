// Runs under a terminal of its own: a shell with job control that starts a run, as a person's does.
#include "daemon/process/terminal.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/process/runner.h"
#include "tests/daemon/process/process_helpers.h"

namespace {

using escrow::tests::eventually;
using escrow::tests::ScratchDirectory;

// Whoever gives the terminal to another group is late: that group has handed it on already.
bool givers_are_late = false;

}  // namespace

extern "C" int tcsetpgrp(int terminal, pid_t group) noexcept {
  if (givers_are_late && group != ::getpgrp()) {
    eventually([&] { return ::tcgetpgrp(terminal) != group; });
    ::dprintf(terminal, "given late\n");
  }
  return ::ioctl(terminal, TIOCSPGRP, &group);
}

namespace escrow::daemon {
namespace {

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

  // Where the terminal's signals go.
  pid_t foreground() const { return ::tcgetpgrp(master_); }

  // A stopped job continues, and what is typed reaches its command again.
  void bring_back(pid_t command) {
    type("fg\n");
    // The command is given the terminal first and continued then, which undoes a stop that came between.
    ASSERT_TRUE(eventually([&] { return foreground() == command && !tests::is_stopped(command); })) << screen_;
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
      // Here alone: given by the shell, too, the terminal could be taken from the command again.
      ::setpgid(0, 0);
      ::tcsetpgrp(STDIN_FILENO, ::getpid());
      ::signal(SIGTTOU, SIG_DFL);
      givers_are_late = are_givers_late_;
      ::_exit(play_job(script));
    }
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
    CommandSpec spec = tests::shell(script, scratch_.path());
    if (is_another_user_) spec.identity = CommandSpec::Identity{65534, 65534, {65534}};
    const CommandEnd end = runner.run(spec);
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
  bool is_another_user_ = false;
  bool are_givers_late_ = false;
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
  const pid_t command = foreground();
  type("\x1a");
  ASSERT_TRUE(shows("job stopped")) << screen_;
  bring_back(command);
  type("after\n");
  EXPECT_TRUE(shows("got after")) << screen_;
  EXPECT_TRUE(shows("terminal ours")) << screen_;
  EXPECT_TRUE(shows("job ended 0")) << screen_;
}

TEST_F(TerminalRun, ControlZTwice) {
  start("echo ready; read line; echo \"got $line\"");
  ASSERT_TRUE(shows("ready")) << screen_;
  const pid_t command = foreground();
  for (int round = 0; round < 2; ++round) {
    type("\x1a");
    ASSERT_TRUE(shows("job stopped")) << screen_;
    bring_back(command);
  }
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

TEST_F(TerminalRun, TheGroupThatTheCommandPutInFrontStaysThere) {
  are_givers_late_ = true;
  start("set -m; sh -c 'echo front; read line; echo \"got $line\"'; exit 4");
  ASSERT_TRUE(shows("front")) << screen_;
  type("hello\n");
  EXPECT_TRUE(shows("got hello")) << screen_;
  EXPECT_TRUE(shows("job ended 4")) << screen_;
  EXPECT_EQ(screen_.find("given late"), std::string::npos) << screen_;
}

TEST_F(TerminalRun, ModesThatTheCommandLeftBehindAreRestored) {
  start("stty -echo raw; kill -9 $$");
  EXPECT_TRUE(shows("terminal ours")) << screen_;
  EXPECT_TRUE(shows("echo on")) << screen_;
}

TEST_F(TerminalRun, AnotherUserTypesNothingIntoTheTerminal) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may run a command as another user";
  const std::string type_it =
      "python3 -c '\n"
      "import fcntl, termios\n"
      "for name in (\"/dev/stdin\", \"/dev/tty\"):\n"
      "    for key in b\"touch typed\\n\":\n"
      "        try: fcntl.ioctl(open(name, \"rb\", buffering=0), termios.TIOCSTI, bytes([key]))\n"
      "        except PermissionError: print(\"refused\")'; echo ready; exec sleep 1000";
  is_another_user_ = true;
  start("exec 2>&1; " + type_it);
  EXPECT_TRUE(shows("refused")) << screen_;
  EXPECT_TRUE(shows("ready")) << screen_;
  EXPECT_EQ(screen_.find("touch"), std::string::npos) << "the terminal echoes what it was given: " << screen_;
  type("\x03");
  EXPECT_TRUE(shows("terminal ours")) << screen_;
}

TEST_F(TerminalRun, AnotherUsersShellHasJobControl) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may run a command as another user";
  is_another_user_ = true;
  start("cd /; exec bash --norc --noprofile -i");
  type("echo in-$((40+2)); id -u; stty size\n");
  EXPECT_TRUE(shows("in-42")) << screen_;
  EXPECT_TRUE(shows("65534")) << screen_;
  EXPECT_EQ(screen_.find("no job control"), std::string::npos) << screen_;
  type("sh -c 'echo up-$((1+2)); exec sleep 1000'\n");
  ASSERT_TRUE(shows("up-3")) << screen_;
  type("\x1a");
  EXPECT_TRUE(shows("Stopped")) << screen_;
  type("kill %1; exit 5\n");
  type("exit 5\n");
  EXPECT_TRUE(shows("job ended 5")) << screen_;
}

TEST_F(TerminalRun, AnInteractiveShellHasJobControl) {
  start("exec bash --norc --noprofile -i");
  type("set -o | grep monitor; echo in-$((40+2))\n");
  EXPECT_TRUE(shows("in-42")) << screen_;
  EXPECT_NE(screen_.find("on"), std::string::npos);
  EXPECT_EQ(screen_.find("no job control"), std::string::npos) << screen_;
  type("sh -c 'echo up-$((1+2)); exec sleep 1000'\n");
  ASSERT_TRUE(shows("up-3")) << screen_;
  type("\x03");
  type("exit 5\n");
  EXPECT_TRUE(shows("job ended 5")) << screen_;
}

}  // namespace
}  // namespace escrow::daemon
