#include "daemon/process/containment.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "daemon/process/descendants.h"
#include "daemon/process/runner.h"
#include "tests/daemon/process/process_helpers.h"

namespace escrow::daemon {
namespace {

using tests::ScratchDirectory;
using tests::shell;

std::unique_ptr<Cgroup> for_killing() {
  Cgroup::Limits none;
  std::vector<std::unique_ptr<Cgroup>> made = Cgroup::make(none);
  return made.empty() ? nullptr : std::move(made.front());
}

bool has_entry_like(const std::string& directory, const std::string& prefix) {
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (entry.path().filename().string().starts_with(prefix)) return true;
  return false;
}

// How many processes of `sleep` a program could have beside itself, then "refused" where that was the reason.
const std::string kForkUntilRefused =
    "python3 -c '\n"
    "import errno, os, time\n"
    "count = 0\n"
    "try:\n"
    "    while count < 1000:\n"
    "        if os.fork() == 0: time.sleep(1000)\n"
    "        count += 1\n"
    "except OSError as error: print(\"refused\" if error.errno == errno.EAGAIN else error, file=open(\"why\", \"w\"))\n"
    "print(count, file=open(\"count\", \"w\"))'";

class ContainmentOf : public testing::TestWithParam<Containment::Method> {
 protected:
  CommandEnd run(const std::string& script, std::uint64_t processes = 0,
                 std::chrono::milliseconds timeout = std::chrono::seconds(50)) {
    CommandSpec spec = shell(script, scratch_.path());
    spec.containment = GetParam();
    spec.limits.processes = processes;
    // Root has no limit of its own. What the kernel counts is a user's processes, those of other tests, too: this one
    // is a user that nobody else is.
    if (processes != 0 && GetParam() == Containment::Method::process_tree && ::geteuid() == 0) {
      ::chmod(scratch_.path().c_str(), 0777);
      const auto user = static_cast<uid_t>(20'000 + ::getpid() % 30'000);
      spec.identity = CommandSpec::Identity{user, user, {user}};
    }
    spec.timeout = timeout;
    spec.grace = std::chrono::milliseconds(100);
    Runner runner;
    return runner.run(spec);
  }
  bool left(const std::string& name) { return tests::is_alive(tests::pid_from(scratch_.file(name))); }
  ScratchDirectory scratch_;
};

INSTANTIATE_TEST_SUITE_P(Methods, ContainmentOf,
                         testing::Values(Containment::Method::cgroup_if_possible, Containment::Method::process_tree),
                         [](const auto& method) {
                           return method.param == Containment::Method::process_tree ? "ProcessTree" : "Cgroup";
                         });

TEST_P(ContainmentOf, EndsABackgroundProcess) {
  EXPECT_EQ(run("sh -c 'echo $$ > pid; exec sleep 1000' & while [ ! -s pid ]; do sleep 0.01; done; exit 0").status, 0);
  EXPECT_FALSE(left("pid"));
}

TEST_P(ContainmentOf, EndsADaemonThatForkedTwiceAndLeftItsSession) {
  const CommandEnd end = run(
      "python3 -c '\n"
      "import os, time\n"
      "if os.fork() == 0:\n"
      "    os.setsid()\n"
      "    if os.fork() == 0:\n"
      "        open(\"pid\", \"w\").write(str(os.getpid()) + \"\\n\")\n"
      "        time.sleep(1000)\n"
      "    os._exit(0)\n"
      "os.wait()\n"
      "while not os.path.exists(\"pid\") or not open(\"pid\").read().endswith(\"\\n\"): time.sleep(0.01)\n"
      "'");
  EXPECT_EQ(end.status, 0);
  EXPECT_FALSE(left("pid"));
  EXPECT_TRUE(end.survivors.empty());
}

TEST_P(ContainmentOf, EndsWhatIgnoresEverySignalThatCanBeIgnoredAndWhatIsStopped) {
  run("sh -c 'trap \"\" TERM INT HUP; echo $$ > deaf; while :; do sleep 1; done' & "
      "sh -c 'echo $$ > stopped; kill -STOP $$' & "
      "while [ ! -s deaf ] || [ ! -s stopped ]; do sleep 0.01; done");
  EXPECT_FALSE(left("deaf"));
  EXPECT_FALSE(left("stopped"));
}

TEST_P(ContainmentOf, EndsAFamilyThatKeepsForking) {
  run("python3 -c '\n"
      "import os, time\n"
      "os.setsid()\n"
      "open(\"pid\", \"w\").write(str(os.getpid()) + \"\\n\")\n"
      "while True:\n"
      "    if os.fork() > 0: os._exit(0)\n"
      "    open(\"beat\", \"a\").write(\"x\")\n"
      "    time.sleep(0.0005)\n"
      "' & while [ ! -s beat ]; do sleep 0.01; done");
  const std::string beats = tests::read_file(scratch_.file("beat"));
  ::usleep(100'000);
  EXPECT_EQ(tests::read_file(scratch_.file("beat")), beats) << "it still runs";
}

TEST_P(ContainmentOf, ACommandHasNoMoreProcessesThanItMay) {
  const CommandEnd end = run(kForkUntilRefused, 20);
  EXPECT_EQ(end.cause, EndCause::exited) << end.message;
  EXPECT_EQ(tests::read_file(scratch_.file("why")), "refused\n");
  // The shell and the interpreter are two of them.
  EXPECT_LE(std::atoi(tests::read_file(scratch_.file("count")).c_str()), 19);
  EXPECT_GE(std::atoi(tests::read_file(scratch_.file("count")).c_str()), 5) << "far fewer than it may";
  EXPECT_EQ(end.ran_out_of_processes, GetParam() == Containment::Method::cgroup_if_possible);
}

TEST_P(ContainmentOf, AForkBombIsEndedAndLeavesNothing) {
  const CommandEnd end = run("exec 2> /dev/null; exec bash -c 'bomb() { echo x >> beat; bomb | bomb & }; "
                             "bomb; while :; do bomb; done'", 60, std::chrono::milliseconds(5000));
  EXPECT_NE(end.cause, EndCause::failed) << end.message;
  EXPECT_TRUE(end.survivors.empty());
  const std::string beats = tests::read_file(scratch_.file("beat"));
  EXPECT_GT(beats.size(), 10u);
  ::usleep(100'000);
  EXPECT_EQ(tests::read_file(scratch_.file("beat")), beats) << "it still runs";
}

TEST(ContainmentOfRoot, ALimitThatCannotBeKeptIsSaidBeforeTheCommandIsStarted) {
  if (::geteuid() != 0) GTEST_SKIP() << "others have a limit in any case";
  const ScratchDirectory scratch;
  CommandSpec spec = shell("echo > started", scratch.path());
  spec.containment = Containment::Method::process_tree;
  spec.limits = {.memory_bytes = {}, .processes = 20, .millicpus = {}, .needs_processes = true};
  Runner runner;
  const CommandEnd end = runner.run(spec);
  EXPECT_EQ(end.cause, EndCause::failed);
  EXPECT_NE(end.message.find("controller pids"), std::string::npos) << end.message;
  EXPECT_FALSE(tests::exists(scratch.file("started")));
}

// A command that says how many processes it was refused beyond, and in which cgroup of version 2 it was.
CommandSpec counted(const ScratchDirectory& scratch, std::uint64_t processes) {
  CommandSpec spec = shell("cat /proc/self/cgroup > cgroup; " + kForkUntilRefused, scratch.path());
  spec.limits.processes = processes;
  spec.timeout = std::chrono::seconds(50);
  return spec;
}

TEST(ContainmentMadeReady, HoldsTheCommandThatItIsMadeFor) {
  Cgroup::Limits wanted{.memory_bytes = {}, .processes = 20, .millicpus = {}};
  if (Cgroup::make(wanted).empty() || wanted.processes) GTEST_SKIP() << "no cgroup that limits processes here";
  const ScratchDirectory scratch;
  for (const std::uint64_t made_for : {std::uint64_t{20}, std::uint64_t{500}}) {
    CommandSpec early;
    early.limits.processes = made_for;
    Runner runner;
    runner.make_ready(early);
    ::usleep(100'000);
    const CommandEnd end = runner.run(counted(scratch, 20));
    EXPECT_EQ(end.cause, EndCause::exited) << end.message;
    EXPECT_TRUE(end.ran_out_of_processes);
    EXPECT_LE(std::atoi(tests::read_file(scratch.file("count")).c_str()), 19);
    EXPECT_NE(tests::read_file(scratch.file("cgroup")).find("escrow-run-"), std::string::npos);
  }
}

TEST(ContainmentMadeReady, TakesNoProcessOfTheCommands) {
  Cgroup::Limits wanted{.memory_bytes = {}, .processes = 1, .millicpus = {}};
  if (Cgroup::make(wanted).empty() || wanted.processes) GTEST_SKIP() << "no cgroup that limits processes here";
  const ScratchDirectory scratch;
  for (int turn = 0; turn < 20; ++turn) {
    CommandSpec spec = shell("true & wait; echo done > done", scratch.path());
    spec.limits.processes = 2;
    Runner runner;
    runner.make_ready(spec);
    const CommandEnd end = runner.run(spec);
    EXPECT_FALSE(end.ran_out_of_processes);
    EXPECT_EQ(end.status, 0);
  }
}

TEST(ContainmentMadeReady, GoesWithoutACommand) {
  Cgroup::Limits none;
  const std::vector<std::unique_ptr<Cgroup>> mine = Cgroup::make(none);
  if (mine.empty()) GTEST_SKIP() << "no writable cgroup v2 hierarchy here";
  const std::string parent = mine.front()->path().substr(0, mine.front()->path().rfind('/'));
  std::string prefix;
  {
    Runner runner;
    runner.make_ready(CommandSpec{});
    prefix = "escrow-run-" + std::to_string(runner.supervisor()) + "-";
    EXPECT_TRUE(tests::eventually([&] { return has_entry_like(parent, prefix); }));
  }
  EXPECT_FALSE(has_entry_like(parent, prefix));
}

// Each sweeps away what owners that were killed left, while others have just made theirs.
TEST(Cgroup, ManyThatAreMadeAtOnceAllComeToBeAndStay) {
  if (!for_killing()) GTEST_SKIP() << "no writable cgroup v2 hierarchy here";
  constexpr int kOwners = 6, kTurns = 150;
  Cgroup::Limits alone{.memory_bytes = {}, .processes = 100, .millicpus = {}};
  const std::size_t wanted = Cgroup::make(alone).size();
  std::vector<pid_t> owners;
  for (int owner = 0; owner < kOwners; ++owner) {
    owners.push_back(::fork());
    if (owners.back() != 0) continue;
    int missing = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
      Cgroup::Limits limits{.memory_bytes = {}, .processes = 100, .millicpus = {}};
      const std::vector<std::unique_ptr<Cgroup>> made = Cgroup::make(limits);
      const bool all_are_there = std::all_of(made.begin(), made.end(), [](const auto& group) {
        return tests::exists(group->path() + "/cgroup.procs") && !group->is_populated();
      });
      if (made.size() != wanted || !all_are_there) ++missing;
    }
    ::_exit(std::min(missing, 255));
  }
  for (const pid_t owner : owners) {
    int status = 0;
    ::waitpid(owner, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 0) << "of " << kTurns;
  }
}

TEST(Cgroup, HoldsEndsAndIsRemoved) {
  std::unique_ptr<Cgroup> group = for_killing();
  if (!group) GTEST_SKIP() << "no writable cgroup v2 hierarchy here";
  const std::string path = group->path();
  EXPECT_FALSE(group->is_populated());
  const pid_t child = ::fork();
  if (child == 0) {
    if (::write(group->entrance(), "0", 1) != 1) ::_exit(1);
    ::pause();
    ::_exit(0);
  }
  ASSERT_TRUE(tests::eventually([&] { return group->is_populated(); }));
  EXPECT_TRUE(group->end_all(std::chrono::milliseconds(50'000)));
  EXPECT_FALSE(group->is_populated());
  end_descendants(std::chrono::milliseconds(50'000));
  group.reset();
  EXPECT_FALSE(tests::exists(path));
}

TEST(Cgroup, LeavesOneThatIsInUseAndRemovesOneWhoseOwnerWasKilled) {
  const std::unique_ptr<Cgroup> mine = for_killing();
  if (!mine) GTEST_SKIP() << "no writable cgroup v2 hierarchy here";
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t owner = ::fork();
  if (owner == 0) {
    const std::unique_ptr<Cgroup> theirs = for_killing();
    const std::string path = theirs->path() + "\n";
    ::_exit(::write(ends[1], path.data(), path.size()) > 0 ? 0 : 1);  // without its destructor, as if killed
  }
  char text[4096];
  const ssize_t length = ::read(ends[0], text, sizeof text);
  ASSERT_GT(length, 1);
  const std::string stale(text, static_cast<std::size_t>(length - 1));
  end_descendants(std::chrono::milliseconds(50'000));
  // It is there until somebody makes the next one: this test, or a run beside it.
  const std::unique_ptr<Cgroup> next = for_killing();
  EXPECT_TRUE(tests::eventually([&] { return !tests::exists(stale); })) << "a run beside it may be removing it";
  EXPECT_TRUE(tests::exists(mine->path()));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Descendants, AreFoundAcrossGenerationsAndEnded) {
  become_subreaper();
  const ScratchDirectory scratch;
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string script = "cd " + scratch.path() +
                               "; sh -c 'echo $$ > grandchild; exec sleep 1000' & echo $$ > child; exec sleep 1000";
    ::execlp("sh", "sh", "-c", script.c_str(), static_cast<char*>(nullptr));
    ::_exit(1);
  }
  const pid_t grandchild = tests::pid_from(scratch.file("grandchild"));
  const std::vector<pid_t> found = descendants_of(::getpid());
  EXPECT_NE(std::find(found.begin(), found.end(), child), found.end());
  EXPECT_NE(std::find(found.begin(), found.end(), grandchild), found.end());
  EXPECT_TRUE(end_descendants(std::chrono::milliseconds(50'000)).empty());
  EXPECT_FALSE(tests::is_alive(child));
  EXPECT_FALSE(tests::is_alive(grandchild));
}

}  // namespace
}  // namespace escrow::daemon
