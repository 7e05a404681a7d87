#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "api/control_client.h"
#include "api/control_server.h"
#include "tests/api/raw_client.h"
#include "tests/support/temporary_directory.h"

namespace escrow::api {
namespace {

using session::Errc;
using session::Error;
using test::RawClient;
using namespace std::chrono_literals;

// Answers like a host would, without a session.
Answer answer(const Request& request, const Peer& peer, const ControlServer::SendPart& send_part) {
  if (const auto* commit = std::get_if<CommitRequest>(&request)) {
    throw Error(Errc::wrong_state, "not now: " + commit->message);
  }
  if (const auto* discard = std::get_if<DiscardRequest>(&request)) {
    return DiscardAnswer{.discarded = discard->paths.size()};
  }
  if (std::holds_alternative<DiffRequest>(request)) {
    for (int part = 0; part < 100; ++part) send_part(DiffPart{.text = std::string(100'000, 'x') + "\xff\n"});
    return DiffEnd{};
  }
  if (std::holds_alternative<UpdateRequest>(request)) {
    std::this_thread::sleep_for(300ms);
    return UpdateAnswer{.base = std::nullopt, .merged = 9, .conflicts = {}};
  }
  return UnmountAnswer{.mountpoint = std::to_string(peer.uid)};
}

class ControlSocket : public ::testing::Test {
 protected:
  support::TemporaryDirectory directory_;
  session::NullLog log_;
  std::unique_ptr<ControlServer> server_ = std::make_unique<ControlServer>(directory_.path(), answer, log_);
};

void expect_code(Errc code, const std::function<void()>& work) {
  try {
    work();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
  }
}

TEST_F(ControlSocket, OnlyItsOwnerMayConnect) {
  struct stat about {};
  ASSERT_EQ(stat((directory_.path() + "/control.sock").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
}

TEST_F(ControlSocket, ThePeerIsTakenFromTheSocket) {
  ControlClient client(directory_.path());
  EXPECT_EQ(std::get<UnmountAnswer>(client.ask(UnmountRequest{})).mountpoint, std::to_string(getuid()));
}

TEST_F(ControlSocket, OneConnectionServesManyRequests) {
  ControlClient client(directory_.path());
  for (std::size_t count = 1; count < 50; ++count) {
    const Answer got = client.ask(DiscardRequest{.paths = std::vector<std::string>(count, "a\xff")});
    EXPECT_EQ(std::get<DiscardAnswer>(got).discarded, count);
  }
}

TEST_F(ControlSocket, AnErrorKeepsItsCodeAndItsSentence) {
  ControlClient client(directory_.path());
  try {
    client.ask(CommitRequest{.message = "because\nof \xff"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::wrong_state);
    EXPECT_STREQ(error.what(), "not now: because\nof \xff");
  }
}

TEST_F(ControlSocket, ALongDiffArrivesWhole) {
  ControlClient client(directory_.path());
  std::size_t bytes = 0;
  client.ask(DiffRequest{}, [&](const DiffPart& part) { bytes += part.text.size(); });
  EXPECT_EQ(bytes, 100u * 100'002u);
}

TEST_F(ControlSocket, NonsenseIsAnsweredAndTheConnectionGoesOn) {
  RawClient client(directory_.path());
  client.send("certainly not JSON\n");
  EXPECT_NE(client.read_line().find("bad_request"), std::string::npos);
  client.send("{\"request\":\"unmount\"}\n");
  EXPECT_NE(client.read_line().find("\"answer\":\"unmount\""), std::string::npos);
}

TEST_F(ControlSocket, ARequestWithoutEndIsRefusedBeforeItFillsTheMemory) {
  RawClient client(directory_.path());
  const std::string megabyte(1 << 20, 'a');
  for (int sent = 0; sent < 18; ++sent) client.send(megabyte);
  EXPECT_NE(client.read_line().find("longer than"), std::string::npos);
}

TEST_F(ControlSocket, AHalfOpenClientStillGetsItsAnswer) {
  RawClient client(directory_.path());
  client.send("{\"request\":\"update\"}\n");
  client.stop_sending();
  EXPECT_NE(client.read_line().find("\"merged\":9"), std::string::npos);
}

TEST_F(ControlSocket, SilentClientsKeepNobodyWaiting) {
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int count = 0; count < 20; ++count) {
    silent.push_back(std::make_unique<RawClient>(directory_.path()));
    silent.back()->send("{\"request\":");
  }
  ControlClient client(directory_.path());
  EXPECT_EQ(std::get<DiscardAnswer>(client.ask(DiscardRequest{.paths = {"a"}})).discarded, 1u);
}

TEST_F(ControlSocket, ClientsBeyondTheLimitAreToldSo) {
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int count = 0; count < 32; ++count) silent.push_back(std::make_unique<RawClient>(directory_.path()));
  RawClient last(directory_.path());
  EXPECT_NE(last.read_line().find("too many clients"), std::string::npos);
}

TEST_F(ControlSocket, AClientThatReadsNothingDoesNotStopTheServersEnd) {
  RawClient client(directory_.path());
  client.send("{\"request\":\"diff\",\"format\":\"patch\"}\n");
  std::this_thread::sleep_for(100ms);
  const auto begun = std::chrono::steady_clock::now();
  server_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 15s);
}

TEST_F(ControlSocket, ARequestUnderWayIsAnsweredBeforeTheServerEnds) {
  RawClient client(directory_.path());
  client.send("{\"request\":\"update\"}\n");
  std::this_thread::sleep_for(100ms);
  server_.reset();
  EXPECT_NE(client.read_line().find("\"merged\":9"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/control.sock"));
}

TEST_F(ControlSocket, AServerThatIsGoneIsUnavailable) {
  server_.reset();
  expect_code(Errc::unavailable, [&] { ControlClient client(directory_.path()); });
}

TEST_F(ControlSocket, TheSocketOfADeadHostIsReplaced) {
  ASSERT_EQ(link((directory_.path() + "/control.sock").c_str(), (directory_.path() + "/left").c_str()), 0);
  server_.reset();
  std::filesystem::rename(directory_.path() + "/left", directory_.path() + "/control.sock");
  expect_code(Errc::unavailable, [&] { ControlClient client(directory_.path()); });
  server_ = std::make_unique<ControlServer>(directory_.path(), answer, log_);
  ControlClient client(directory_.path());
  client.ask(UnmountRequest{});
}

TEST_F(ControlSocket, ADirectoryOfAnyLengthWillDo) {
  std::string deep = directory_.path();
  for (int level = 0; level < 10; ++level) deep += "/" + std::string(100, 'd');
  std::filesystem::create_directories(deep);
  const ControlServer server(deep, answer, log_);
  ControlClient client(deep);
  client.ask(UnmountRequest{});
}

TEST_F(ControlSocket, AnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  // Made reachable on purpose: the mode alone must not be what keeps others out.
  std::filesystem::permissions(directory_.path(), std::filesystem::perms::all);
  std::filesystem::permissions(directory_.path() + "/control.sock", std::filesystem::perms::all);
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(65534, 65534, 65534) != 0) _exit(2);
    RawClient client(directory_.path());
    client.send("{\"request\":\"unmount\"}\n");
    _exit(client.read_line().find("another user") == std::string::npos ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace escrow::api
