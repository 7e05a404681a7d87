// What a command leaves behind cannot write into its commit: background processes, mappings, open descriptors, daemons.
// And what is left when the host process is killed.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/mount/run_fixture.h"

namespace escrow::test {
namespace {

bool is_alive(pid_t pid) {
  return shell("case \"$(sed 's/.*) //' /proc/" + std::to_string(pid) +
               "/stat 2> /dev/null)\" in ''|Z*) echo no;; *) echo yes;; esac") == "yes";
}

pid_t number_in(const std::string& text) { return text.empty() ? -1 : static_cast<pid_t>(std::stol(text)); }

TEST_F(EscrowRun, ABackgroundWriterIsEndedBeforeTheCommit) {
  const ProcessResult result = run(
      "(i=0; while :; do i=$((i+1)); echo $i >> log; echo $i > $OUT/last; done) & echo $! > $OUT/pid; "
      "while [ ! -s log ]; do sleep 0.01; done; exit 0");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_FALSE(is_alive(number_in(read("pid"))));
  const std::string committed = head();
  const std::string log = content("log");
  ::usleep(200'000);
  EXPECT_EQ(head(), committed);
  EXPECT_EQ(content("log"), log);
  // What was acknowledged before the end is in, whole lines in order.
  EXPECT_EQ(shell("git -c safe.directory='*' --git-dir '" + repository_ +
                  "' show main:log | awk '$1 != NR {print \"gap\"}' | head -1"),
            "");
}

TEST_F(EscrowRun, ADaemonWithAMappingAndADescriptorIsEndedBeforeTheCommit) {
  const ProcessResult result = run(
      "python3 - <<'EOF'\n"
      "import mmap, os, time\n"
      "with open('mapped', 'wb') as f: f.write(b'-' * 4096)\n"
      "read, write = os.pipe()\n"
      "if os.fork() == 0:\n"
      "    os.setsid()\n"
      "    if os.fork() > 0: os._exit(0)\n"
      "    fd = os.open('mapped', os.O_RDWR)\n"
      "    log = os.open('log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
      "    memory = mmap.mmap(fd, 4096)\n"
      "    memory[0:6] = b'before'\n"
      "    os.write(log, b'before\\n')\n"
      "    os.write(write, b'x')\n"
      "    time.sleep(0.2)\n"
      "    while True:\n"
      "        memory[6:11] = b'after'\n"
      "        os.write(log, b'after\\n')\n"
      "        time.sleep(0.01)\n"
      "os.read(read, 1)\n"
      "EOF");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(content("mapped").substr(0, 6), "before") << "what was in the mapping at the end is committed";
  const std::string committed = content("mapped");
  const std::string log = content("log");
  EXPECT_EQ(log.rfind("before", 0), 0u);
  ::usleep(300'000);
  EXPECT_EQ(content("mapped"), committed);
  EXPECT_EQ(content("log"), log);
  EXPECT_TRUE(no_mount_left());
}

// Unmounting ends only what this mount namespace shows: the kernel would write the other's pages back when that ends.
TEST_F(EscrowRun, WhatAnotherMountNamespaceMappedIsInTheCommitAndNothingLater) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can make a mount namespace of the machine's mounts";
  ASSERT_EQ(run_process({"mkdir", file("mnt")}).status, 0);
  BackgroundRun background(run_command_line({"--mountpoint", file("mnt")},
                                            "head -c 4096 /dev/zero > mapped; touch " + file("up") +
                                                "; while [ ! -e " + file("dirty") + " ]; do sleep 0.01; done; exit 0"),
                           file("err"));
  ASSERT_TRUE(eventually([&] { return has("up"); }));
  BackgroundRun holder({"/usr/bin/env", "unshare", "--mount", "--propagation", "private", "python3", "-c",
                        "import mmap, os, time\n"
                        "memory = mmap.mmap(os.open('" + file("mnt") + "/mapped', os.O_RDWR), 4096)\n"
                        "memory[0:6] = b'before'\n"
                        "open('" + file("dirty") + "', 'w').close()\n"
                        "while not os.path.exists('" + file("ended") + "'):\n"
                        "  time.sleep(0.01)\n"
                        "if os.fork() == 0:\n"
                        "  memory[6:11] = b'after'\n"
                        "  memory.flush()\n"
                        "  os._exit(0)\n"
                        "os.wait()\n"
                        "open('" + file("tried") + "', 'w').close()\n"},
                       file("holder-err"));
  EXPECT_EQ(background.wait(), 0) << read("err");
  shell("touch " + file("ended"));
  ASSERT_TRUE(eventually([&] { return has("tried"); })) << read("holder-err");
  EXPECT_EQ(shell("git --git-dir '" + repository_ + "' show main:mapped | head -c 11 | tr '\\0' -"), "before-----");
}

// A process that is not the command's own holds the mount: it was here before, so it is not ended, and it is named.
TEST_F(EscrowRun, AForeignHolderIsNamedAndWritesNoMore) {
  const ProcessResult ready = run_process({"mkdir", file("mnt")});
  ASSERT_EQ(ready.status, 0);
  BackgroundRun background(run_command_line({"--mountpoint", file("mnt")},
                                            "echo first > held; touch " + file("up") + "; while [ ! -e " +
                                                file("held-now") + " ]; do sleep 0.01; done; exit 0"),
                           file("err"));
  ASSERT_TRUE(eventually([&] { return has("up"); }));
  const int fd = ::open(file("mnt/held").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, "second\n", 7), 7);
  ASSERT_EQ(run_process({"touch", file("held-now")}).status, 0);
  EXPECT_EQ(background.wait(), 0) << read("err");
  EXPECT_LT(::write(fd, "third\n", 6), 0);
  ::close(fd);
  EXPECT_EQ(content("held"), "first\nsecond");
  EXPECT_NE(read("err").find("(" + std::to_string(::getpid()) + ")"), std::string::npos) << read("err");
  EXPECT_TRUE(eventually([&] { return no_mount_left(); }));
}

TEST_F(EscrowRun, KillingTheHostEndsTheCommandAndTheMountAndTheNextCommandRollsBack) {
  const std::string before = head();
  ASSERT_EQ(run_process({"mkdir", file("mnt")}).status, 0);
  BackgroundRun background(
      run_command_line({"--mountpoint", file("mnt")},
                       "printf 'lost-%s' work > new.txt; setsid sleep 1000 & echo $! > " + file("far") +
                           "; echo $$ > " + file("near") + "; touch " + file("up") + "; exec sleep 1000"),
      file("err"));
  ASSERT_TRUE(eventually([&] { return has("up"); }));
  const pid_t near = number_in(read("near")), far = number_in(read("far"));
  ::kill(background.pid(), SIGKILL);
  background.wait();
  EXPECT_TRUE(eventually([&] { return !is_alive(near) && !is_alive(far); }));
  EXPECT_TRUE(eventually([&] { return no_mount_left(); })) << shell("cat /proc/mounts");
  const ProcessResult sessions = escrow({"sessions"});
  EXPECT_EQ(sessions.status, 0) << sessions.err;
  EXPECT_NE(sessions.out.find("rolled_back"), std::string::npos) << sessions.out;
  EXPECT_EQ(head(), before);
  EXPECT_EQ(shell("grep -r lost-work '" + repository_ + "' || echo nothing"), "nothing");
}

}  // namespace
}  // namespace escrow::test
