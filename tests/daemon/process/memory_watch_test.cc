// Kills for want of memory in cgroups of version 1 that are gone before the watch looks: its process is stopped
// meanwhile. The programs, the kills and the ends of the cgroups are real.
#include "daemon/process/memory_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "daemon/process/cgroup.h"
#include "process_helpers.h"

namespace escrow::daemon {
namespace {

using tests::eventually;
using tests::read_file;
using tests::ScratchDirectory;

constexpr std::uint64_t kMemory_bytes = 32u << 20u;

#ifdef SYS_poll
const std::string kPoll = std::to_string(SYS_poll);
#else
const std::string kPoll;  // poll(2) is ppoll(2) there
#endif

void write_file(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

// The group of a command, and the process of a watch over it, which is stopped once it has asked the kernel for events.
class MemoryWatchThatIsHeld : public testing::Test {
 protected:
  void SetUp() override {
    Cgroup::Limits limits{.memory_bytes = kMemory_bytes, .processes = {}, .millicpus = {}};
    for (std::unique_ptr<Cgroup>& each : Cgroup::make(limits))
      if (tests::exists(each->path() + "/memory.oom_control")) group_ = std::move(each);
    if (!group_) GTEST_SKIP() << "no writable cgroup v1 hierarchy that limits memory here";
  }

  // `script` in the group, once it is told to go on.
  void start(const std::string& script) {
    command_ = ::fork();
    if (command_ == 0) {
      const std::string whole = "while [ ! -e " + scratch_.file("go") + " ]; do sleep 0.01; done; " + script;
      if (::write(group_->entrance(), "0", 1) == 1) ::execl("/bin/sh", "sh", "-c", whole.c_str(), nullptr);
      ::_exit(1);
    }
    ASSERT_TRUE(eventually([&] { return group_->is_populated(); }));
    watcher_ = ::fork();
    if (watcher_ == 0) {
      MemoryWatch watch(command_);
      eventually([&] { return tests::exists(scratch_.file("look")); });
      ::_exit(watch.finish() ? 1 : 0);
    }
    ASSERT_TRUE(eventually([&] { return watcher_waits(); }));
  }

  void hold() {
    ::kill(watcher_, SIGSTOP);
    int status = 0;
    ASSERT_EQ(::waitpid(watcher_, &status, WUNTRACED), watcher_);
    ASSERT_TRUE(WIFSTOPPED(status));
  }

  void go_on() { write_file(scratch_.file("go"), ""); }

  int status_of_the_command() {
    int status = 0;
    ::waitpid(command_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  bool saw_a_kill() {
    group_.reset();
    write_file(scratch_.file("look"), "");
    ::kill(watcher_, SIGCONT);
    int status = 0;
    ::waitpid(watcher_, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
    return WEXITSTATUS(status) == 1;
  }

  std::unique_ptr<Cgroup> group_;
  const ScratchDirectory scratch_;

 private:
  // proc_pid_syscall(5): its thread has asked the kernel for events, and waits for the first of three descriptors.
  bool watcher_waits() const {
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(watcher_) + "/task")) {
      std::istringstream words(read_file(task.path().string() + "/syscall"));
      std::string call, descriptors, count;
      words >> call >> descriptors >> count;
      if ((call == std::to_string(SYS_ppoll) || call == kPoll) && count == "0x3") return true;
    }
    return false;
  }

  pid_t command_ = -1, watcher_ = -1;
};

TEST_F(MemoryWatchThatIsHeld, SeesAKillThatTheEndFollows) {
  start("tail /dev/zero; [ $? = 137 ] && exit 0");
  hold();
  go_on();
  EXPECT_EQ(status_of_the_command(), 0);
  EXPECT_TRUE(group_->ran_out_of_memory());
  EXPECT_TRUE(saw_a_kill());
}

TEST_F(MemoryWatchThatIsHeld, TakesTheEndForNoKill) {
  start("exit 0");
  hold();
  go_on();
  EXPECT_EQ(status_of_the_command(), 0);
  EXPECT_FALSE(saw_a_kill());
}

// It goes on once another process of its cgroup has ended.
TEST_F(MemoryWatchThatIsHeld, TakesAWantForNoKillWhereProcessesWaitInstead) {
  write_file(group_->path() + "/memory.oom_control", "1");
  start("tail /dev/zero & echo $! > " + scratch_.file("waits") + "; wait; exit 0");
  hold();
  go_on();
  const pid_t waits = tests::pid_from(scratch_.file("waits"));
  const std::string control = group_->path() + "/memory.oom_control";
  ASSERT_TRUE(eventually([&] { return read_file(control).find("under_oom 1") != std::string::npos; }));
  ::kill(waits, SIGKILL);
  EXPECT_EQ(status_of_the_command(), 0);
  EXPECT_FALSE(group_->ran_out_of_memory());
  EXPECT_FALSE(saw_a_kill());
}

}  // namespace
}  // namespace escrow::daemon
