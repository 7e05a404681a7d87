#include "daemon/process/runner.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "daemon/process/descendants.h"
#include "daemon/process/message_channel.h"
#include "daemon/process/output_capture.h"
#include "fuse/place.h"
#include "tests/daemon/process/process_helpers.h"

namespace {

// A supervisor is late to say that it has started its command: a debugger holds it by then.
bool starts_are_told_late = false;

bool has_a_debugger() {
  return escrow::tests::read_file("/proc/self/status").find("TracerPid:\t0\n") == std::string::npos;
}

}  // namespace

extern "C" ssize_t send(int socket, const void* bytes, size_t length, int flags) {
  escrow::daemon::MessageKind kind{};
  if (starts_are_told_late && length >= sizeof kind) {
    std::memcpy(&kind, bytes, sizeof kind);
    if (kind == escrow::daemon::MessageKind::started) escrow::tests::eventually(has_a_debugger);
  }
  return ::sendto(socket, bytes, length, flags, nullptr, 0);
}

namespace escrow::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using tests::ScratchDirectory;
using tests::shell;

CommandEnd run_shell(const std::string& script, const ScratchDirectory& scratch) {
  Runner runner;
  return runner.run(shell(script, scratch.path()));
}

// A command whose timeout comes before it has begun to ignore a signal dies of that, having done nothing of its script.
constexpr milliseconds kTimeToSetATrap{4000};

// Runs `script` in a process of its own, which signals can be sent to; its end comes back through a file.
class SeparateRun {
 public:
  SeparateRun(const CommandSpec& spec, const std::string& result_file,
              const std::function<void(const Runner&)>& started = [](const Runner&) {}) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::setpgid(0, 0);
    std::string bytes;
    {
      Runner runner;
      bytes = encode(runner.run(spec, [&] { started(runner); }));
    }
    FILE* file = std::fopen(result_file.c_str(), "wb");
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    std::fclose(file);
    ::_exit(0);
  }
  pid_t pid() const { return pid_; }
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return status;
  }

 private:
  pid_t pid_;
};

CommandEnd end_in(const std::string& file) { return decode_command_end(tests::read_file(file)); }

TEST(Runner, ReportsTheExitStatus) {
  const ScratchDirectory scratch;
  for (const int status : {0, 1, 3, 77, 255}) {
    const CommandEnd end = run_shell("exit " + std::to_string(status), scratch);
    EXPECT_EQ(end.cause, EndCause::exited);
    EXPECT_EQ(end.status, status);
    EXPECT_TRUE(end.survivors.empty());
  }
}

TEST(Runner, StartsNothingOutsideTheMountThatTheWorkingDirectoryHasToBeIn) {
  const ScratchDirectory scratch;
  CommandSpec spec = shell("touch started", scratch.path());
  spec.mountpoint = scratch.path();
  spec.device = fuse::device_of("/proc");
  Runner runner;
  const CommandEnd end = runner.run(spec);
  EXPECT_EQ(end.cause, EndCause::failed);
  EXPECT_EQ(end.message, "the command was not started: " + scratch.path() + " does not lead to the session's mount, as "
                         "if something else had been mounted over it");
  EXPECT_FALSE(tests::exists(scratch.file("started")));
  spec.device = fuse::device_of(scratch.path());
  Runner another;
  EXPECT_EQ(another.run(spec).cause, EndCause::exited);
  EXPECT_TRUE(tests::exists(scratch.file("started")));
}

TEST(Runner, ReportsTheSignalThatKilledTheCommand) {
  const ScratchDirectory scratch;
  for (const int number : {SIGKILL, SIGSEGV, SIGTERM, SIGINT}) {
    const CommandEnd end = run_shell("kill -" + std::to_string(number) + " $$", scratch);
    EXPECT_EQ(end.cause, EndCause::signalled);
    EXPECT_EQ(end.signal_number, number);
  }
}

TEST(Runner, TellsNotFoundFromCannotBeRun) {
  const ScratchDirectory scratch;
  CommandSpec spec = shell("", scratch.path());
  spec.arguments = {"no-such-program-anywhere"};
  Runner first;
  const CommandEnd missing = first.run(spec);
  EXPECT_EQ(missing.cause, EndCause::not_found);
  EXPECT_NE(missing.message.find("no-such-program-anywhere"), std::string::npos);
  spec.arguments = {scratch.path()};
  Runner second;
  const CommandEnd refused = second.run(spec);
  EXPECT_EQ(refused.cause, EndCause::could_not_run);
  EXPECT_NE(refused.message.find("Permission denied"), std::string::npos) << refused.message;
}

TEST(Runner, GivesDirectoryEnvironmentAndUmask) {
  const ScratchDirectory scratch;
  CommandSpec spec = shell("echo \"$PWD $MARK\" > out; umask >> out", scratch.path());
  spec.environment = {"PATH=/usr/bin:/bin", "MARK=here I am"};
  spec.umask = 0037;
  Runner runner;
  EXPECT_EQ(runner.run(spec).cause, EndCause::exited);
  EXPECT_EQ(tests::read_file(scratch.file("out")), scratch.path() + " here I am\n0037\n");
}

TEST(Runner, ACommandInheritsNoBlockedSignalAndNoDescriptorOfOurs) {
  const ScratchDirectory scratch;
  CommandSpec spec = shell("grep -E 'SigBlk|SigIgn' /proc/self/status > mask; ls -1 /proc/self/fd | wc -l > count",
                           scratch.path());
  Runner runner;
  EXPECT_EQ(runner.run(spec).status, 0);
  const std::string mask = tests::read_file(scratch.file("mask"));
  EXPECT_NE(mask.find("SigBlk:\t0000000000000000"), std::string::npos) << mask;
  EXPECT_NE(mask.find("SigIgn:\t0000000000000000"), std::string::npos) << mask;
}

TEST(Runner, RunsAsAnotherUserWithThatUsersGroupsOnly) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may";
  const ScratchDirectory scratch;
  ::chmod(scratch.path().c_str(), 0777);
  CommandSpec spec = shell("id -u > who; id -g >> who; id -G >> who", scratch.path());
  spec.identity = CommandSpec::Identity{65534, 65534, {65534}};
  Runner runner;
  EXPECT_EQ(runner.run(spec).cause, EndCause::exited);
  EXPECT_EQ(tests::read_file(scratch.file("who")), "65534\n65534\n65534\n");
}

TEST(Runner, KeepsTheFirstBytesOfEachStreamAndHoldsNobodyUp) {
  const ScratchDirectory scratch;
  const ScratchDirectory kept;
  CommandSpec spec = shell("head -c 30000000 /dev/zero | tr '\\0' x; echo why >&2; (sleep 60; echo late >&2) & exit 4",
                           scratch.path());
  spec.output = {.directory = kept.path(), .most_bytes = 100'000};
  Runner runner;
  EXPECT_EQ(runner.run(spec).status, 4);
  EXPECT_EQ(tests::read_file(kept.file("stdout")), std::string(100'000, 'x'));
  EXPECT_EQ(tests::read_file(kept.file("stderr")), "why\n");
  struct stat about {};
  EXPECT_EQ(::stat(kept.file("stdout").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, kTruncatedOutputMode);
  EXPECT_EQ(::stat(kept.file("stderr").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, kOutputMode);
}

TEST(Runner, ACommandWhoseOutputCannotBeKeptIsNotStarted) {
  const ScratchDirectory scratch;
  CommandSpec spec = shell("touch started", scratch.path());
  spec.output = {.directory = scratch.file("missing"), .most_bytes = 10};
  Runner runner;
  const CommandEnd end = runner.run(spec);
  EXPECT_EQ(end.cause, EndCause::failed);
  EXPECT_NE(end.message.find("could not be kept"), std::string::npos) << end.message;
  EXPECT_FALSE(tests::exists(scratch.file("started")));
}

TEST(Runner, ATimeoutEndsTheCommandAndWinsOverItsExitZero) {
  const ScratchDirectory scratch;
  CommandSpec spec = shell("trap 'exit 0' TERM; while :; do sleep 0.02; done", scratch.path());
  spec.timeout = milliseconds(200);
  Runner runner;
  EXPECT_EQ(runner.run(spec).cause, EndCause::timed_out);
}

TEST(Runner, ATimeoutKillsWhatIgnoresTheFirstSignal) {
  const ScratchDirectory scratch;
  CommandSpec spec = shell("trap '' TERM INT; while :; do sleep 0.02; done", scratch.path());
  spec.timeout = kTimeToSetATrap;
  spec.grace = milliseconds(200);
  const auto begun = steady_clock::now();
  Runner runner;
  EXPECT_EQ(runner.run(spec).cause, EndCause::timed_out);
  EXPECT_GE(steady_clock::now() - begun, kTimeToSetATrap + milliseconds(200));
  EXPECT_LT(steady_clock::now() - begun, milliseconds(60'000));
}

TEST(Runner, ACancelGoesToTheWholeProcessGroupAndWinsOverExitZero) {
  const ScratchDirectory scratch;
  CommandSpec spec = shell(
      "trap 'echo parent >> heard; exit 0' TERM; (trap 'echo child >> heard; exit 0' TERM; echo > ready; while :; do "
      "sleep 0.02; done) & while :; do sleep 0.02; done",
      scratch.path());
  spec.grace = milliseconds(60'000);  // both end by themselves
  SeparateRun separate(spec, scratch.file("end"));
  ASSERT_TRUE(tests::eventually([&] { return tests::exists(scratch.file("ready")); }));
  ::kill(separate.pid(), SIGTERM);
  EXPECT_EQ(separate.wait(), 0);
  const CommandEnd end = end_in(scratch.file("end"));
  EXPECT_EQ(end.cause, EndCause::cancelled);
  EXPECT_EQ(end.signal_number, SIGTERM);
  EXPECT_NE(tests::read_file(scratch.file("heard")).find("parent"), std::string::npos);
}

TEST(Runner, ACancelKillsWhatIgnoresItAfterTheGracePeriod) {
  const ScratchDirectory scratch;
  CommandSpec spec = shell("trap '' INT; echo > ready; while :; do sleep 0.02; done", scratch.path());
  spec.grace = milliseconds(300);
  SeparateRun separate(spec, scratch.file("end"));
  ASSERT_TRUE(tests::eventually([&] { return tests::exists(scratch.file("ready")); }));
  ::kill(separate.pid(), SIGINT);
  EXPECT_EQ(separate.wait(), 0);
  EXPECT_EQ(end_in(scratch.file("end")).cause, EndCause::cancelled);
  EXPECT_EQ(end_in(scratch.file("end")).signal_number, SIGINT);
}

// The command, which is the same user, keeps the supervisor from its work.
TEST(Runner, AStoppedSupervisorDoesNotDefeatTheTimeout) {
  const ScratchDirectory scratch;
  CommandSpec spec = shell("kill -STOP $PPID; trap 'exit 0' TERM; while :; do sleep 0.02; done", scratch.path());
  spec.timeout = kTimeToSetATrap;
  {
    Runner runner;
    EXPECT_EQ(runner.run(spec).cause, EndCause::timed_out);
  }
  EXPECT_TRUE(descendants_of(::getpid()).empty());
}

TEST(Runner, ASupervisorThatIsStoppedAgainAndAgainEndsTheCommandAllTheSame) {
  const ScratchDirectory scratch;
  for (const int cancel : {0, SIGTERM}) {
    // Before the timeout there is nothing to see.
    CommandSpec spec = shell("trap '' TERM; echo > ready; " + std::string(cancel == 0 ? "sleep 3; " : "") +
                             "(while :; do kill -STOP $PPID; done) & while :; do kill -STOP $PPID; done",
                             scratch.path());
    spec.grace = milliseconds(100);
    if (cancel == 0) spec.timeout = kTimeToSetATrap;
    SeparateRun separate(spec, scratch.file("end"));
    ASSERT_TRUE(tests::eventually([&] { return tests::exists(scratch.file("ready")); }));
    ::unlink(scratch.file("ready").c_str());
    if (cancel != 0) ::kill(separate.pid(), cancel);
    EXPECT_EQ(separate.wait(), 0);
    EXPECT_EQ(end_in(scratch.file("end")).cause, cancel == 0 ? EndCause::timed_out : EndCause::cancelled);
  }
}

TEST(Runner, ASupervisorThatADebuggerHoldsIsKilledWithTheCommand) {
  for (const bool is_told_late : {false, true}) {
    const ScratchDirectory scratch;
    CommandSpec spec = shell("trap '' TERM; exec python3 -c '\n"
                             "import ctypes, os, time\n"
                             "parent = os.getppid()\n"
                             "attached = ctypes.CDLL(None).ptrace(16, parent, 0, 0) == 0\n"
                             "while True:\n"
                             "    attached or os.kill(parent, 19)\n"  // where the kernel forbids it, the next best
                             "    time.sleep(0.01)'",
                             scratch.path());
    spec.timeout = milliseconds(5000);
    spec.grace = milliseconds(100);
    starts_are_told_late = is_told_late;
    CommandEnd end;
    {
      Runner runner;
      end = runner.run(spec);
    }
    starts_are_told_late = false;
    EXPECT_EQ(end.cause, EndCause::timed_out);
    EXPECT_TRUE(descendants_of(::getpid()).empty());
  }
}

TEST(Runner, AnEndThatIsSeenAfterTheDeadlineIsATimeout) {
  const ScratchDirectory scratch;
  CommandSpec spec = shell("sleep 5; exit 0", scratch.path());
  spec.timeout = milliseconds(4000);
  SeparateRun separate(spec, scratch.file("end"), [&](const Runner& runner) {
    std::ofstream(scratch.file("supervisor")) << runner.supervisor() << "\n";
    for (const pid_t command : descendants_of(runner.supervisor())) {
      std::ofstream(scratch.file("pid")) << command << "\n";
      break;
    }
    ::kill(runner.supervisor(), SIGSTOP);
    ::raise(SIGSTOP);
  });
  const pid_t supervisor = tests::pid_from(scratch.file("supervisor")), command = tests::pid_from(scratch.file("pid"));
  EXPECT_TRUE(tests::eventually([&] { return !tests::is_alive(command); })) << "it exits with 0, and nobody looks";
  ::kill(supervisor, SIGCONT);
  ::kill(separate.pid(), SIGCONT);
  EXPECT_EQ(separate.wait(), 0);
  EXPECT_EQ(end_in(scratch.file("end")).cause, EndCause::timed_out);
}

TEST(Runner, TheFirstCauseDecides) {
  const ScratchDirectory scratch;
  CommandSpec spec = shell("trap 'echo > heard' TERM; trap 'exit 3' INT; while :; do sleep 0.02; done", scratch.path());
  spec.timeout = kTimeToSetATrap;
  spec.grace = milliseconds(60'000);  // it ends by the second signal
  SeparateRun separate(spec, scratch.file("end"));
  // It has timed out, and is in its grace period.
  ASSERT_TRUE(tests::eventually([&] { return tests::exists(scratch.file("heard")); }));
  ::kill(separate.pid(), SIGINT);
  EXPECT_EQ(separate.wait(), 0);
  EXPECT_EQ(end_in(scratch.file("end")).cause, EndCause::timed_out);
  EXPECT_EQ(end_in(scratch.file("end")).command_status, 3);
}

// Unread, it would keep the host from sleeping until the command ends.
TEST(Runner, ASecondSignalReachesTheCommandAndDoesNotChangeTheCause) {
  const ScratchDirectory scratch;
  CommandSpec spec = shell("trap 'echo > heard' TERM; trap 'exit 3' INT; echo > ready; while :; do sleep 0.02; done",
                           scratch.path());
  spec.grace = milliseconds(20'000);  // then it is killed, and has no status of its own
  SeparateRun separate(spec, scratch.file("end"));
  ASSERT_TRUE(tests::eventually([&] { return tests::exists(scratch.file("ready")); }));
  ::kill(separate.pid(), SIGTERM);
  ASSERT_TRUE(tests::eventually([&] { return tests::exists(scratch.file("heard")); }));
  ::kill(separate.pid(), SIGINT);
  EXPECT_EQ(separate.wait(), 0);
  const CommandEnd end = end_in(scratch.file("end"));
  EXPECT_EQ(end.cause, EndCause::cancelled);
  EXPECT_EQ(end.signal_number, SIGTERM);
  EXPECT_EQ(end.command_status, 3);
}

TEST(Runner, ASignalBeforeTheStartCancelsWithoutStarting) {
  const ScratchDirectory scratch;
  Runner runner;
  ::raise(SIGTERM);
  const CommandEnd end = runner.run(shell("echo > started", scratch.path()));
  EXPECT_EQ(end.cause, EndCause::cancelled);
  EXPECT_FALSE(tests::exists(scratch.file("started")));
}

TEST(Runner, ASignalAfterTheEndDoesNotChangeIt) {
  const ScratchDirectory scratch;
  CommandEnd end;
  {
    Runner runner;
    end = runner.run(shell("exit 0", scratch.path()));
    ::raise(SIGTERM);  // taken by the runner, not by this process
  }
  EXPECT_EQ(end.cause, EndCause::exited);
}

TEST(Runner, KillingTheHostKillsEveryProcessOfTheCommand) {
  const ScratchDirectory scratch;
  const CommandSpec spec = shell(
      "setsid sh -c 'echo $$ > far; exec sleep 1000' & echo $$ > near; exec sleep 1000", scratch.path());
  SeparateRun separate(spec, scratch.file("end"));
  const pid_t near = tests::pid_from(scratch.file("near"));
  const pid_t far = tests::pid_from(scratch.file("far"));
  ::kill(separate.pid(), SIGKILL);
  separate.wait();
  EXPECT_TRUE(tests::eventually([&] { return !tests::is_alive(near) && !tests::is_alive(far); }));
}

TEST(Runner, KillingTheSupervisorKillsEveryProcessOfTheCommandAndFails) {
  const ScratchDirectory scratch;
  for (const auto method : {Containment::Method::cgroup_if_possible, Containment::Method::process_tree}) {
    CommandSpec spec = shell("setsid sh -c 'echo $$ > far; exec sleep 1000' & "
                             "while [ ! -s far ]; do sleep 0.01; done; kill -9 $PPID; exec sleep 1000",
                             scratch.path());
    spec.containment = method;
    Runner runner;
    const CommandEnd end = runner.run(spec);
    EXPECT_EQ(end.cause, EndCause::lost);
    EXPECT_FALSE(tests::is_alive(tests::pid_from(scratch.file("far"))));
    ::unlink(scratch.file("far").c_str());
  }
}

}  // namespace
}  // namespace escrow::daemon
