// Who is at the other end of a socket; with less than our rights: Escrowd.RootWithoutTheServicesRightsIsNoOperator.
#include "api/local_peer.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "tests/support/temporary_directory.h"

namespace escrow::api {
namespace {

class LocalPeerTest : public testing::Test {
 protected:
  LocalPeerTest() : listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sun_family = AF_UNIX;
    std::strncpy(address_.sun_path, (directory_.path() + "/socket").c_str(), sizeof address_.sun_path - 1);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<const sockaddr*>(&address_), sizeof address_), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
  }
  ~LocalPeerTest() override { ::close(listener_); }

  int connect() const {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&address_), sizeof address_), 0);
    return socket;
  }
  int accept() const { return ::accept(listener_, nullptr, nullptr); }

  support::TemporaryDirectory directory_;
  sockaddr_un address_{};
  const int listener_;
};

TEST_F(LocalPeerTest, AProcessLikeThisOneHasItsRights) {
  const int client = connect(), server = accept();
  const LocalPeer peer = local_peer_of(server);
  EXPECT_EQ(peer.uid, ::geteuid());
  EXPECT_EQ(peer.gid, ::getegid());
  EXPECT_EQ(peer.groups.size(), static_cast<std::size_t>(::getgroups(0, nullptr)));
  EXPECT_TRUE(peer.has_our_rights);
  ::close(client);
  ::close(server);
}

TEST_F(LocalPeerTest, OfAProcessThatHasEndedOnlyTheNumbersAreKnown) {
  int go_on[2];
  ASSERT_EQ(::pipe(go_on), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    connect();
    // Its connection lives on in another process.
    if (::fork() == 0) {
      ::close(go_on[1]);
      char byte = 0;
      [[maybe_unused]] const ssize_t count = ::read(go_on[0], &byte, 1);
    }
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  const int server = accept();
  const LocalPeer peer = local_peer_of(server);
  EXPECT_EQ(peer.uid, ::geteuid());
  EXPECT_FALSE(peer.has_our_rights);
  ::close(go_on[0]);
  ::close(go_on[1]);
  ::close(server);
}

TEST_F(LocalPeerTest, NobodyIsAtTheOtherEndOfAnUnconnectedSocket) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_FALSE(local_peer_of(socket).has_our_rights);
  ::close(socket);
  EXPECT_EQ(local_peer_of(socket).uid, kNobodysId);
}

}  // namespace
}  // namespace escrow::api
