// What a command that is not its caller's own is kept from, as a real process; on a terminal: terminal_test.cc.
#include "daemon/process/hardening.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/keyctl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "daemon/process/runner.h"
#include "tests/daemon/process/process_helpers.h"

namespace escrow::daemon {
namespace {

using tests::ScratchDirectory;
using tests::shell;

// In a process of its own: what `action` returns, which is at most 255.
int in_a_child(const std::function<int()>& action) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(action());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

// The errno of a request to a descriptor that is none.
int error_of(unsigned long request) {
  char byte = 'x';
  return ::ioctl(-1, request, &byte) == 0 ? 0 : errno;
}

TEST(Hardening, NothingCanBeTypedIntoATerminal) {
  for (const Trust trust : {Trust::another_user, Trust::hostile}) {
    EXPECT_EQ(in_a_child([&] { return forbid_typing_into_the_terminal(trust) != 0 ? 255 : error_of(TIOCSTI); }), EPERM);
    EXPECT_EQ(in_a_child([&] { return forbid_typing_into_the_terminal(trust) != 0 ? 255 : error_of(0x541c); }), EPERM);
    EXPECT_EQ(in_a_child([&] { return forbid_typing_into_the_terminal(trust) != 0 ? 255 : error_of(TIOCGWINSZ); }),
              EBADF);
  }
}

#ifdef __x86_64__
int error_of_32_bit_ioctl(unsigned request) {
  int result = 54;
  asm volatile("int $0x80" : "+a"(result) : "b"(-1), "c"(request), "d"(0) : "memory", "r8", "r9", "r10", "r11");
  return -result;
}

TEST(Hardening, NotByCallsOfA32BitModeEither) {
  if (in_a_child([] { return error_of_32_bit_ioctl(TIOCGWINSZ); }) != EBADF) GTEST_SKIP() << "no such mode here";
  const auto after = [](Trust trust, unsigned request) {
    return in_a_child([=] {
      return forbid_typing_into_the_terminal(trust) != 0 ? 255 : error_of_32_bit_ioctl(request);
    });
  };
  EXPECT_EQ(after(Trust::another_user, TIOCSTI), EPERM);
  EXPECT_EQ(after(Trust::another_user, TIOCGWINSZ), EBADF) << "another user's programs may be old ones";
  EXPECT_EQ(after(Trust::hostile, TIOCSTI), ENOSYS);
  EXPECT_EQ(after(Trust::hostile, TIOCGWINSZ), ENOSYS);
}
#endif

class OtherUser : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root may run a command as another user";
    ::chmod(scratch_.path().c_str(), 0777);
  }
  std::string output_of(const std::string& script) {
    CommandSpec spec = shell("(" + script + ") > out 2>&1", scratch_.path());
    spec.identity = CommandSpec::Identity{65534, 65534, {65534}};
    Runner runner;
    const CommandEnd end = runner.run(spec);
    EXPECT_EQ(end.cause, EndCause::exited) << end.message;
    return tests::read_file(scratch_.file("out"));
  }
  ScratchDirectory scratch_;
};

TEST_F(OtherUser, FindsNoKeyOfItsCallersSession) {
  if (::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) < 0) GTEST_SKIP() << "the kernel gives no keys";
  ASSERT_GT(::syscall(SYS_add_key, "user", "escrow-test-secret", "hunter2", 7, KEY_SPEC_SESSION_KEYRING), 0);
  const std::string look =
      "python3 -c '\n"
      "import ctypes\n"
      "libc = ctypes.CDLL(None, use_errno=True)\n"
      "key = libc.syscall(" + std::to_string(SYS_keyctl) + ", 10, -3, b\"user\", b\"escrow-test-secret\", 0)\n"
      "text = ctypes.create_string_buffer(16)\n"
      "libc.syscall(" + std::to_string(SYS_keyctl) + ", 11, key, text, 16)\n"
      "print(text.value.decode() or \"nothing\")'";
  EXPECT_EQ(output_of(look), "nothing\n");
  CommandSpec own = shell(look + " > own", scratch_.path());
  Runner runner;
  EXPECT_EQ(runner.run(own).status, 0);
  EXPECT_EQ(tests::read_file(scratch_.file("own")), "hunter2\n") << "the caller's own command has the caller's keys";
}

TEST_F(OtherUser, InheritsNoDescriptorButTheFirstThree) {
  const int mine = ::open("/etc/shadow", O_RDONLY);
  ASSERT_GT(mine, 2);
  EXPECT_EQ(output_of("test -e /proc/self/fd/" + std::to_string(mine) + " && echo inherited; echo done"), "done\n");
  ::close(mine);
}

TEST_F(OtherUser, MayGainTheRightsThatTheMachineGivesIt) {
  const std::string status = output_of("grep -E 'NoNewPrivs|Seccomp:' /proc/self/status");
  EXPECT_EQ(status, "NoNewPrivs:\t0\nSeccomp:\t2\n") << "sudo and su still work in it";
}

}  // namespace
}  // namespace escrow::daemon
