#include "daemon/containment.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "daemon/descendants.h"
#include "daemon/runner.h"
#include "tests/daemon/process_helpers.h"

namespace escrow::daemon {
namespace {

using tests::ScratchDirectory;
using tests::shell;

class ContainmentOf : public testing::TestWithParam<Containment::Method> {
 protected:
  CommandEnd run(const std::string& script) {
    CommandSpec spec = shell(script, scratch_.path());
    spec.containment = GetParam();
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

TEST(Cgroup, HoldsEndsAndIsRemoved) {
  std::unique_ptr<Cgroup> group = Cgroup::try_create();
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
  EXPECT_TRUE(group->end_all(std::chrono::milliseconds(5000)));
  EXPECT_FALSE(group->is_populated());
  end_descendants(std::chrono::milliseconds(5000));
  group.reset();
  EXPECT_FALSE(tests::exists(path));
}

TEST(Cgroup, LeavesOneThatIsInUseAndRemovesOneWhoseOwnerWasKilled) {
  const std::unique_ptr<Cgroup> mine = Cgroup::try_create();
  if (!mine) GTEST_SKIP() << "no writable cgroup v2 hierarchy here";
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t owner = ::fork();
  if (owner == 0) {
    const std::unique_ptr<Cgroup> theirs = Cgroup::try_create();
    const std::string path = theirs->path() + "\n";
    ::_exit(::write(ends[1], path.data(), path.size()) > 0 ? 0 : 1);  // without its destructor, as if killed
  }
  char text[4096];
  const ssize_t length = ::read(ends[0], text, sizeof text);
  ASSERT_GT(length, 1);
  const std::string stale(text, static_cast<std::size_t>(length - 1));
  end_descendants(std::chrono::milliseconds(5000));
  ASSERT_TRUE(tests::exists(stale));
  const std::unique_ptr<Cgroup> next = Cgroup::try_create();
  EXPECT_FALSE(tests::exists(stale));
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
  EXPECT_TRUE(end_descendants(std::chrono::milliseconds(5000)).empty());
  EXPECT_FALSE(tests::is_alive(child));
  EXPECT_FALSE(tests::is_alive(grandchild));
}

}  // namespace
}  // namespace escrow::daemon
