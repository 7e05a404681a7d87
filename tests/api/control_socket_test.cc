#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "api/control_client.h"
#include "api/control_server.h"
#include "api/control_socket.h"
#include "api/problem.h"
#include "tests/api/raw_client.h"
#include "tests/support/sample_record.h"
#include "tests/support/temporary_directory.h"

namespace escrow::api {
namespace {

using session::Errc;
using session::Error;
using test::RawClient;
using namespace std::chrono_literals;

const session::SessionId kSocketSession = *session::SessionId::parse("0123456789abcdef");

// An update takes until it may end, so that a test knows what happens beside it.
struct Update {
  std::atomic<bool> has_begun = false, may_end = false;
};
Update update;        // anew for each test
std::atomic<bool> rollback_has_begun = false;
std::string written;  // the last content, for whom, in which session

SessionView about() { return {.record = support::sample_record(kSocketSession)}; }

// What another client of HTTP sends.
std::string raw(const std::string& method, const std::string& verb, const std::string& body = {}) {
  return method + " /v1/sessions/" + kSocketSession.text() + verb +
         " HTTP/1.1\r\nHost: escrow\r\nContent-Length: " + std::to_string(body.size()) +
         (body.empty() ? "" : "\r\nContent-Type: application/json") + "\r\n\r\n" + body;
}
const std::string kHealth = "GET /v1/health HTTP/1.1\r\nHost: escrow\r\n\r\n";
constexpr const char* kOk = "HTTP/1.1 200 OK\r";

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
    const bool is_damaged = std::get<DiffRequest>(request).format == DiffFormat::stat;
    if (is_damaged) throw Error(Errc::damaged_repository, "in the middle");
    return DiffEnd{};
  }
  if (std::holds_alternative<UpdateRequest>(request)) {
    update.has_begun = true;
    update.has_begun.notify_all();
    update.may_end.wait(false);
    return UpdateAnswer{.base = std::nullopt, .merged = 9, .conflicts = {}};
  }
  if (std::holds_alternative<RollbackRequest>(request)) {
    rollback_has_begun = true;
    rollback_has_begun.notify_all();
    std::this_thread::sleep_for(6s);  // longer than a client waits before it looks whether anybody is there
    return RollbackAnswer{};
  }
  if (const auto* write = std::get_if<WriteFileRequest>(&request)) {
    std::string bytes(100, '\0');
    const ssize_t count = pread(write->content, bytes.data(), bytes.size(), 0);
    bytes.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
    written = bytes + " by " + peer.speaks_for + " in " + peer.session;
    return FileAnswer{};
  }
  if (std::holds_alternative<RemoveFileRequest>(request)) {
    throw session::Denied({"unlink", "delete", "dir/\xff", "rule 3"}, "the policy does not allow to delete it");
  }
  if (std::holds_alternative<TrafficRequest>(request)) {
    return TrafficAnswer{.operations = {}, .staged_bytes = peer.uid};
  }
  return UnmountAnswer{};
}

class ControlSocket : public ::testing::Test {
 protected:
  ControlSocket() { update.has_begun = update.may_end = false; }
  ~ControlSocket() override { let_updates_end(); }

  static void let_updates_end() {
    update.may_end = true;
    update.may_end.notify_all();
  }

  // In the place of a server: whoever connects waits in its queue.
  int listen_there() const {
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = directory_.path() + "/control.sock";
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(0, bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address));
    EXPECT_EQ(0, listen(listener, 1));
    return listener;
  }

  support::TemporaryDirectory directory_;
  session::NullLog log_;
  std::unique_ptr<ControlServer> server_ = std::make_unique<ControlServer>(directory_.path(), answer, about, log_);
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
  ControlClient client(directory_.path(), kSocketSession);
  EXPECT_EQ(std::get<TrafficAnswer>(client.ask(TrafficRequest{})).staged_bytes, getuid());
}

TEST_F(ControlSocket, WhomAPeerAsksForGoesBesideTheRequest) {
  ControlClient client(directory_.path(), kSocketSession);
  client.ask(WriteFileRequest{.path = "a", .executable = {}});
  EXPECT_EQ(written, " by  in " + kSocketSession.text());
  for (const std::string who : {"user:ann", "user:a\r\nb \xff%"}) {
    client.speak_for(who);
    client.ask(WriteFileRequest{.path = "a", .executable = {}});
    EXPECT_EQ(written, " by " + who + " in " + kSocketSession.text());
  }
}

TEST_F(ControlSocket, AnOpenFileGoesWithTheRequestItBelongsTo) {
  ControlClient client(directory_.path(), kSocketSession);
  const std::string path = directory_.path() + "/content";
  std::ofstream(path) << "the content";
  for (int turn = 0; turn < 3; ++turn) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    client.ask(WriteFileRequest{.path = "a", .executable = {}, .content = file});
    close(file);
    EXPECT_TRUE(written.starts_with("the content by")) << written;
    client.ask(WriteFileRequest{.path = "a", .executable = {}});
    EXPECT_TRUE(written.starts_with(" by")) << "a file of an earlier request: " << written;
  }
}

// A second one would stay open for as long as the host lives, one for each request of a peer that means ill.
TEST_F(ControlSocket, OfSeveralOpenFilesNoneStaysOpen) {
  int pair[2], first[2], second[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  ASSERT_EQ(pipe2(first, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(second, O_CLOEXEC), 0);
  const std::array<int, 2> files = {first[1], second[1]};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof files)> control{};
  iovec bytes{const_cast<char*>("x"), 1};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof files);
  std::memcpy(CMSG_DATA(header), files.data(), sizeof files);
  ASSERT_EQ(sendmsg(pair[0], &message, 0), 1);
  for (const int file : files) close(file);
  std::string received;
  {
    Descriptor beside;
    ASSERT_EQ(receive_bytes(pair[1], 5s, received, beside), Received::some);
    EXPECT_GE(beside.get(), 0);
  }
  for (const int pipe : {first[0], second[0]}) {
    char byte = 0;
    ASSERT_EQ(fcntl(pipe, F_SETFL, O_NONBLOCK), 0);
    EXPECT_EQ(read(pipe, &byte, 1), 0) << "somebody has the other end open: " << std::strerror(errno);
    close(pipe);
  }
  for (const int socket : pair) close(socket);
}

// As other clients of HTTP send it; longer than any other body may be.
TEST_F(ControlSocket, AContentMayBeTheBody) {
  RawClient client(directory_.path());
  const std::string content = "the beginning" + std::string(17u << 20, 'x');
  client.send("PUT /v1/sessions/" + kSocketSession.text() +
              "/files/a HTTP/1.1\r\nContent-Length: " + std::to_string(content.size()) + "\r\n\r\n");
  client.send(content);
  EXPECT_EQ(client.read_line(), kOk);
  EXPECT_TRUE(written.starts_with("the beginningxxxx")) << written;
}

TEST_F(ControlSocket, WhatAPolicyRefusesArrivesWithItsRule) {
  ControlClient client(directory_.path(), kSocketSession);
  try {
    client.ask(RemoveFileRequest{.path = "a"});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Problem& problem) {
    EXPECT_EQ(problem.code(), Errc::access_denied);
    const Problem::Members members = {{"path", "dir/\xff"}, {"action", "delete"}, {"rule", "rule 3"}};
    EXPECT_EQ(problem.members(), members);
  }
}

// A host of before HTTP takes each line of a request for one, and refuses it in a line of JSON.
TEST_F(ControlSocket, AHostOfAnEarlierVersionIsNamed) {
  server_.reset();
  const int listener = listen_there();
  std::thread host([listener] {
    const int client = accept(listener, nullptr, nullptr);
    char bytes[4096];
    EXPECT_GT(read(client, bytes, sizeof bytes), 0);
    const std::string_view refusal = "{\"answer\":\"error\",\"code\":\"bad_request\",\"message\":\"not JSON\"}\n";
    EXPECT_EQ(write(client, refusal.data(), refusal.size()), static_cast<ssize_t>(refusal.size()));
    close(client);
  });
  ControlClient client(directory_.path(), kSocketSession);
  try {
    client.ask(CommitRequest{});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::unavailable);
    const std::string sentence = error.what();
    EXPECT_NE(sentence.find("earlier version"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find(kSocketSession.text()), std::string::npos) << sentence;
    EXPECT_NE(sentence.find(std::to_string(getpid())), std::string::npos) << sentence;
  }
  EXPECT_FALSE(client.is_untaken()) << "it is not asked again and again";
  host.join();
  close(listener);
}

// What takes an answer for whole must be able to tell.
TEST_F(ControlSocket, ADiffThatFailsAfterItsBeginningIsBrokenOff) {
  ControlClient client(directory_.path(), kSocketSession);
  expect_code(Errc::unavailable, [&] { client.ask(DiffRequest{.format = DiffFormat::stat}); });
}

TEST_F(ControlSocket, AHostThatDoesNotAnswerIsNotWaitedForByWhoOnlyLooks) {
  ControlClient client(directory_.path(), kSocketSession);
  EXPECT_FALSE(client.ask_within(UpdateRequest{}, 50ms));
  ControlClient other(directory_.path(), kSocketSession);
  EXPECT_TRUE(other.ask_within(UnmountRequest{}, 60s));
}

TEST_F(ControlSocket, OneConnectionServesManyRequests) {
  ControlClient client(directory_.path(), kSocketSession);
  for (std::size_t count = 1; count < 50; ++count) {
    const Answer got = client.ask(DiscardRequest{.paths = std::vector<std::string>(count, "a\xff")});
    EXPECT_EQ(std::get<DiscardAnswer>(got).discarded, count);
  }
}

TEST_F(ControlSocket, AnErrorKeepsItsCodeAndItsSentence) {
  ControlClient client(directory_.path(), kSocketSession);
  try {
    client.ask(CommitRequest{.message = "because\nof \xff"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::wrong_state);
    EXPECT_STREQ(error.what(), "not now: because\nof \xff");
  }
}

TEST_F(ControlSocket, ALongDiffArrivesWhole) {
  ControlClient client(directory_.path(), kSocketSession);
  std::size_t bytes = 0;
  client.ask(DiffRequest{}, [&](const DiffPart& part) { bytes += part.text.size(); });
  EXPECT_EQ(bytes, 100u * 100'002u);
}

TEST_F(ControlSocket, AnAnswerMayTakeAsLongAsItTakes) {
  ControlClient client(directory_.path(), kSocketSession);
  EXPECT_TRUE(std::holds_alternative<RollbackAnswer>(client.ask(RollbackRequest{})));
}

TEST_F(ControlSocket, AHostSaysThatItIsWellBesideAVerb) {
  RawClient busy(directory_.path());
  busy.send(raw("POST", "/update"));
  RawClient first(directory_.path());
  first.send(kHealth);
  EXPECT_EQ(first.read_line(), kOk);
  let_updates_end();
  EXPECT_NE(busy.read_body().find("\"merged\":9"), std::string::npos);
}

// A request that comes too late is closed unread, so that it can be made again of who has the session next; one that
// was taken before is answered.
TEST_F(ControlSocket, AServerThatEndsAnswersWhatItHasTakenAndTakesNothingMore) {
  RawClient busy(directory_.path());
  busy.send(raw("POST", "/update"));
  update.has_begun.wait(false);
  std::thread end([&] { server_.reset(); });
  for (std::string said = kOk; !said.empty();) {
    RawClient second(directory_.path());
    second.send(kHealth);
    said = second.read_line();
  }
  ControlClient late(directory_.path(), kSocketSession);
  expect_code(Errc::unavailable, [&] { late.ask(UnmountRequest{}); });
  EXPECT_TRUE(late.is_untaken());
  EXPECT_FALSE(late.is_silent());
  let_updates_end();
  EXPECT_NE(busy.read_body().find("\"merged\":9"), std::string::npos);
  end.join();
}

// Whoever connects to a host in its last moment waits in the queue of a socket that is closed, or just was.
TEST_F(ControlSocket, ARequestInTheQueueOfAServerThatEndsIsNotTaken) {
  server_.reset();
  for (const bool is_sent_before : {true, false}) {
    const int listener = listen_there();
    ControlClient client(directory_.path(), kSocketSession);
    std::thread close_it([&] {
      if (is_sent_before) std::this_thread::sleep_for(100ms);
      close(listener);
    });
    if (!is_sent_before) close_it.join();
    expect_code(Errc::unavailable, [&] { client.ask(UnmountRequest{}); });
    EXPECT_TRUE(client.is_untaken());
    if (is_sent_before) close_it.join();
    ASSERT_EQ(unlink((directory_.path() + "/control.sock").c_str()), 0);
  }
}

// A host that rolls a session back removes its directory before it answers, and may take long for it.
TEST_F(ControlSocket, AnAnswerIsWaitedForWhenTheDirectoryHasGone) {
  rollback_has_begun = false;
  ControlClient client(directory_.path(), kSocketSession);
  const std::string elsewhere = directory_.path() + ".gone";
  std::thread remove([&] {
    rollback_has_begun.wait(false);
    std::filesystem::rename(directory_.path(), elsewhere);
  });
  EXPECT_TRUE(std::holds_alternative<RollbackAnswer>(client.ask(RollbackRequest{})));
  remove.join();
  std::filesystem::rename(elsewhere, directory_.path());
}

// What a host that is stopped looks like.
TEST_F(ControlSocket, AHostThatAnswersNothingIsNamedAndNotWaitedFor) {
  server_.reset();
  const int listener = listen_there();
  ControlClient client(directory_.path(), kSocketSession);
  EXPECT_EQ(client.host(), getpid());
  pid_t asked = 0;
  expect_code(Errc::unavailable, [&] {
    client.ask(UnmountRequest{}, {}, [&](pid_t host) {
      asked = host;
      return false;
    });
  });
  EXPECT_TRUE(client.is_silent());
  EXPECT_EQ(asked, getpid());
  // Where nobody knows better, it is pinged.
  ControlClient patient(directory_.path(), kSocketSession);
  expect_code(Errc::unavailable, [&] { patient.ask(UnmountRequest{}); });
  EXPECT_TRUE(patient.is_silent());
  close(listener);
}

TEST_F(ControlSocket, NonsenseIsRefusedAndTheConnectionGoesOn) {
  RawClient client(directory_.path());
  client.send(raw("POST", "/discard", "certainly not JSON"));
  EXPECT_NE(client.read_body().find("malformed_json"), std::string::npos);
  client.send(raw("GET", "/nothing"));
  EXPECT_NE(client.read_body().find("not_found"), std::string::npos);
  client.send(raw("POST", "/discard", R"({"paths":["a"]})"));
  EXPECT_NE(client.read_body().find("\"discarded\":1"), std::string::npos);
}

TEST_F(ControlSocket, WhatIsNotHttpIsToldSo) {
  RawClient client(directory_.path());
  client.send("{\"request\":\"unmount\"}\n");
  EXPECT_NE(client.read_body().find("malformed_request"), std::string::npos);
}

TEST_F(ControlSocket, ARequestWithoutEndIsRefusedBeforeItFillsTheMemory) {
  const std::string megabyte(1 << 20, 'a');
  for (const char* length : {"Content-Length: 18000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n1200000\r\n"}) {
    RawClient client(directory_.path());
    client.send("POST /v1/sessions/" + kSocketSession.text() + "/commit HTTP/1.1\r\n" + length);
    for (int sent = 0; sent < 18; ++sent) client.send(megabyte);
    EXPECT_NE(client.read_body().find("longer than"), std::string::npos) << length;
  }
}

TEST_F(ControlSocket, AHalfOpenClientStillGetsItsAnswer) {
  RawClient client(directory_.path());
  client.send(raw("POST", "/update"));
  client.stop_sending();
  let_updates_end();
  EXPECT_NE(client.read_body().find("\"merged\":9"), std::string::npos);
}

TEST_F(ControlSocket, SilentClientsKeepNobodyWaiting) {
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int count = 0; count < 20; ++count) {
    silent.push_back(std::make_unique<RawClient>(directory_.path()));
    silent.back()->send("POST /v1/sess");
  }
  ControlClient client(directory_.path(), kSocketSession);
  EXPECT_EQ(std::get<DiscardAnswer>(client.ask(DiscardRequest{.paths = {"a"}})).discarded, 1u);
}

TEST_F(ControlSocket, ClientsBeyondTheLimitAreToldSo) {
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int count = 0; count < 128; ++count) silent.push_back(std::make_unique<RawClient>(directory_.path()));
  RawClient last(directory_.path());
  EXPECT_NE(last.read_body().find("too many clients"), std::string::npos);
}

TEST_F(ControlSocket, AClientThatReadsNothingDoesNotStopTheServersEnd) {
  RawClient client(directory_.path());
  client.send(raw("GET", "/diff"));
  std::this_thread::sleep_for(100ms);
  const auto begun = std::chrono::steady_clock::now();
  server_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 50s);
}

TEST_F(ControlSocket, ARequestUnderWayIsAnsweredBeforeTheServerEnds) {
  RawClient client(directory_.path());
  client.send(raw("POST", "/update"));
  update.has_begun.wait(false);
  std::thread end([&] { server_.reset(); });
  std::this_thread::sleep_for(50ms);  // most likely it waits by now
  let_updates_end();
  end.join();
  EXPECT_NE(client.read_body().find("\"merged\":9"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/control.sock"));
}

TEST_F(ControlSocket, AServerThatIsGoneIsUnavailable) {
  server_.reset();
  expect_code(Errc::unavailable, [&] { ControlClient client(directory_.path(), kSocketSession); });
}

TEST_F(ControlSocket, TheSocketOfADeadHostIsReplaced) {
  ASSERT_EQ(link((directory_.path() + "/control.sock").c_str(), (directory_.path() + "/left").c_str()), 0);
  server_.reset();
  std::filesystem::rename(directory_.path() + "/left", directory_.path() + "/control.sock");
  expect_code(Errc::unavailable, [&] { ControlClient client(directory_.path(), kSocketSession); });
  server_ = std::make_unique<ControlServer>(directory_.path(), answer, about, log_);
  ControlClient client(directory_.path(), kSocketSession);
  client.ask(UnmountRequest{});
}

TEST_F(ControlSocket, ADirectoryOfAnyLengthWillDo) {
  std::string deep = directory_.path();
  for (int level = 0; level < 10; ++level) deep += "/" + std::string(100, 'd');
  std::filesystem::create_directories(deep);
  const ControlServer server(deep, answer, about, log_);
  ControlClient client(deep, kSocketSession);
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
    client.send(raw("POST", "/unmount"));
    _exit(client.read_body().find("another user") == std::string::npos ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace escrow::api
