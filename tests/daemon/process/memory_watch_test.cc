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
#include <utility>

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

std::unique_ptr<Cgroup> make_group() {
  Cgroup::Limits limits{.memory_bytes = kMemory_bytes, .processes = {}, .millicpus = {}};
  for (std::unique_ptr<Cgroup>& each : Cgroup::make(limits))
    if (tests::exists(each->path() + "/memory.oom_control")) return std::move(each);
  return nullptr;
}

pid_t start_in(const Cgroup& group, const std::string& script) {
  const pid_t process = ::fork();
  if (process != 0) return process;
  if (::write(group.entrance(), "0", 1) == 1) ::execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
  ::_exit(1);
}

void let_the_kernel_kill_elsewhere() {
  const std::unique_ptr<Cgroup> group = make_group();
  ASSERT_TRUE(group);
  ::waitpid(start_in(*group, "exec tail /dev/zero"), nullptr, 0);
  ASSERT_TRUE(group->ran_out_of_memory());
}

// The group of a command, and the process of a watch over it, which is stopped once it has asked the kernel for events.
class HeldMemoryWatch : public testing::Test {
 protected:
  void SetUp() override {
    group_ = make_group();
    if (!group_) GTEST_SKIP() << "no writable cgroup v1 hierarchy that limits memory here";
  }

  void TearDown() override {
    for (const pid_t process : {command_, watcher_}) {
      if (process <= 0) continue;
      ::kill(process, SIGKILL);
      ::waitpid(process, nullptr, 0);
    }
  }

  // `script` in the group, once it is told to go on.
  void start(const std::string& script) {
    command_ = start_in(*group_, "while [ ! -e " + scratch_.file("go") + " ]; do sleep 0.01; done; " + script);
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
    ASSERT_GT(watcher_, 0);
    ::kill(watcher_, SIGSTOP);
    int status = 0;
    ASSERT_EQ(::waitpid(watcher_, &status, WUNTRACED), watcher_);
    ASSERT_TRUE(WIFSTOPPED(status));
  }

  void go_on() { write_file(scratch_.file("go"), ""); }

  int status_of_the_command() {
    int status = 0;
    ::waitpid(std::exchange(command_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  bool saw_a_kill() {
    const std::string path = group_->path();
    group_.reset();
    EXPECT_FALSE(tests::exists(path));
    write_file(scratch_.file("look"), "");
    ::kill(watcher_, SIGCONT);
    int status = 0;
    ::waitpid(std::exchange(watcher_, -1), &status, 0);
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

TEST_F(HeldMemoryWatch, AKillRightBeforeTheEndIsSeen) {
  ASSERT_NO_FATAL_FAILURE(start("tail /dev/zero; [ $? = 137 ] && exit 0"));
  ASSERT_NO_FATAL_FAILURE(hold());
  go_on();
  EXPECT_EQ(status_of_the_command(), 0);
  EXPECT_TRUE(group_->ran_out_of_memory());
  EXPECT_TRUE(saw_a_kill());
}

TEST_F(HeldMemoryWatch, TheEndAloneIsNoKill) {
  ASSERT_NO_FATAL_FAILURE(start("exit 0"));
  ASSERT_NO_FATAL_FAILURE(hold());
  ASSERT_NO_FATAL_FAILURE(let_the_kernel_kill_elsewhere());
  go_on();
  EXPECT_EQ(status_of_the_command(), 0);
  EXPECT_FALSE(saw_a_kill());
}

// The kernel lets processes wait for memory where the cgroup says so; one of them is ended by somebody else.
TEST_F(HeldMemoryWatch, AnEventWithoutAKillIsNoKill) {
  write_file(group_->path() + "/memory.oom_control", "1");
  const std::string waiting = "sh -c 'echo $$ > " + scratch_.file("waits") + "; exec tail /dev/zero'";
  ASSERT_NO_FATAL_FAILURE(start(waiting + " & wait; exit 0"));
  ASSERT_NO_FATAL_FAILURE(hold());
  ASSERT_NO_FATAL_FAILURE(let_the_kernel_kill_elsewhere());
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
