#include "daemon/process/network_namespace.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tests/daemon/process/process_helpers.h"

namespace escrow::daemon {
namespace {

constexpr int kRefused = 100;  // plus the errno

// What a process of `uid` finds when it has left the network: how many devices it has, where one of them works.
int devices_after_leaving(uid_t uid) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (uid != ::geteuid() && ::setresuid(uid, uid, uid) != 0) ::_exit(255);
    ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);  // as a process is that was its from the beginning
    if (const int error = leave_network()) ::_exit(kRefused + error);
    if (::geteuid() != uid) ::_exit(254);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    const int server = ::socket(AF_INET, SOCK_STREAM, 0), client = ::socket(AF_INET, SOCK_STREAM, 0);
    const bool works = ::bind(server, any, length) == 0 && ::listen(server, 1) == 0 &&
                       ::getsockname(server, any, &length) == 0 && ::connect(client, any, length) == 0;
    const std::string table = tests::read_file("/proc/self/net/dev");
    ::_exit(works ? static_cast<int>(std::count(table.begin(), table.end(), ':')) : 253);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 252;
}

TEST(NetworkNamespace, HasALoopbackThatWorksAndNothingElse) {
  const int found = devices_after_leaving(::geteuid());
  if (found == kRefused + EPERM) GTEST_SKIP() << "the kernel gives no network namespace here";
  EXPECT_EQ(found, 1);
}

TEST(NetworkNamespace, AnOrdinaryUserGetsOneAndStaysWhoItIs) {
  const int found = devices_after_leaving(::geteuid() == 0 ? 65534 : ::geteuid());
  if (found == kRefused + EPERM) GTEST_SKIP() << "the kernel gives ordinary users no user namespace here";
  EXPECT_EQ(found, 1);
}

}  // namespace
}  // namespace escrow::daemon
