// SIGKILL to the process that hosts a mount, at any moment: it is gone at once, and every command answers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "tests/mount/cli_fixture.h"
#include "tests/mount/worker.h"

namespace escrow::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kMapped_bytes = std::size_t{24} << 20, kPage_bytes = 4096;

// Stores into every page of a mapping, over and over.
int store_for_ever(const std::string& path, const std::function<void()>& has_begun) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0 || ::ftruncate(file, kMapped_bytes) != 0) return 1;
  void* const mapping = ::mmap(nullptr, kMapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapping == MAP_FAILED) return 1;
  auto* const bytes = static_cast<volatile std::uint64_t*>(mapping);
  for (std::uint64_t round = 1;; ++round) {
    for (std::size_t at = 0; at < kMapped_bytes; at += kPage_bytes) bytes[at / sizeof round] = round;
    if (round == 1) has_begun();
  }
}

// Makes and removes names, whose directory the kernel locks for the time of each call.
int rename_for_ever(const std::string& directory, const std::function<void()>& has_begun) {
  ::mkdir(directory.c_str(), 0755);
  has_begun();
  for (int round = 0;; ++round) {
    const std::string name = directory + "/" + std::to_string(round % 7);
    if (::mkdir(name.c_str(), 0755) != 0 && errno == ENOTCONN) return 0;
    ::rmdir(name.c_str());
  }
}

bool is_gone(pid_t process) {
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return true;
  // A leader that has ended while a thread of the process goes on is a zombie, too.
  const bool is_zombie = line.compare(line.rfind(')') + 2, 1, "Z") == 0;
  std::error_code failed;
  const auto threads = std::distance(fs::directory_iterator("/proc/" + std::to_string(process) + "/task", failed), {});
  return is_zombie && threads <= 1;
}

// Its leader stops only when all of its threads are to.
bool is_stopped(pid_t process) {
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  return std::getline(stat, line) && line.compare(line.rfind(')') + 2, 1, "T") == 0;
}

// A host in its last moment: it holds the session and listens, and takes nothing any more.
class EndingHost {
 public:
  explicit EndingHost(const std::string& session_directory) {
    lock_ = ::open((session_directory + "/lock").c_str(), O_RDWR | O_CLOEXEC);
    struct flock whole {};
    whole.l_type = F_WRLCK;
    EXPECT_EQ(::fcntl(lock_, F_OFD_SETLK, &whole), 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = session_directory + "/control.sock";
    EXPECT_LT(path.size(), sizeof address.sun_path);
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    ::unlink(path.c_str());
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    end_ = std::thread([this] { end_when_asked(); });
  }
  ~EndingHost() { end_.join(); }
  EndingHost(const EndingHost&) = delete;
  EndingHost& operator=(const EndingHost&) = delete;

 private:
  // As a killed process does it: one descriptor after the other.
  void end_when_asked() const {
    pollfd somebody{listener_, POLLIN, 0};
    EXPECT_EQ(::poll(&somebody, 1, 60'000), 1) << "nobody has asked";
    std::this_thread::sleep_for(milliseconds(100));
    ::close(listener_);
    std::this_thread::sleep_for(milliseconds(200));
    ::close(lock_);
  }

  int lock_ = -1, listener_ = -1;
  std::thread end_;
};

class HostKill : public EscrowCommands {
 protected:
  // A host that cannot end is let go of, so that one failure is not many.
  void TearDown() override {
    ::umount2(mountpoint_.c_str(), MNT_FORCE | MNT_DETACH);
    EscrowCommands::TearDown();
  }

  pid_t host_of(const std::string& session) const {
    const pid_t host = test::host_of(repository_, session);
    EXPECT_GT(host, 0) << session;
    return host;
  }

  // Until it has come to see the signal a process goes on, and may still answer.
  void stop(pid_t process) const {
    ::kill(process, SIGSTOP);
    EXPECT_TRUE(eventually([&] { return is_stopped(process); }));
  }

  // Within seconds.
  bool goes(pid_t process) const {
    return eventually([&] { return is_gone(process); });
  }

  // SIGKILL to the host of a session in which programs store through a mapping and make names, `delay` after
  // somebody has begun to ask for `arguments`.
  void kill_during(const std::string& session, const std::vector<std::string>& arguments, milliseconds delay) const {
    const Worker stores([&](const auto& has_begun) { return store_for_ever(in_mount("mapped"), has_begun); });
    const Worker names([&](const auto& has_begun) { return rename_for_ever(in_mount("names"), has_begun); });
    ASSERT_TRUE(stores.has_begun() && names.has_begun());
    const pid_t host = host_of(session);
    ASSERT_GT(host, 0);
    std::thread verb([&] { ask(arguments); });
    std::this_thread::sleep_for(delay);
    ::kill(host, SIGKILL);
    EXPECT_TRUE(goes(host)) << "the killed host is still there";
    if (HasFailure()) ::umount2(mountpoint_.c_str(), MNT_FORCE | MNT_DETACH);
    verb.join();
  }

  ProcessResult ask(const std::vector<std::string>& arguments) const {
    std::vector<std::string> whole = {"--repo", repository_};
    whole.insert(whole.end(), arguments.begin(), arguments.end());
    return run_escrow(whole,
                      {.directory = directory_.path(), .environment = {}, .input = {}, .timeout = seconds(100)});
  }

  void expect_answers(const std::vector<std::string>& arguments) const {
    const ProcessResult result = ask(arguments);
    EXPECT_EQ(result.status, 0) << arguments.front() << ": " << result.err;
  }
};

TEST_F(HostKill, DuringALiveCommitItIsGoneInSecondsAndEveryCommandAnswers) {
  for (int trial = 0; trial < 12 && !HasFailure(); ++trial) {
    const std::string session = mount();
    kill_during(session, {"commit", session}, milliseconds(trial * 20));
    expect_answers({"sessions"});
    expect_answers({"status", session});
    expect_answers({"gc"});
    expect_answers({"run", "--", "true"});
    EXPECT_FALSE(is_mounted()) << "trial " << trial;
  }
}

// Each tells the kernel something, or asks something of the mount.
TEST_F(HostKill, DuringEveryOtherVerbItIsGoneInSecondsToo) {
  for (int trial = 0; trial < 3; ++trial) {
    for (const std::string verb : {"update", "discard", "diff", "unmount", "rollback"}) {
      if (HasFailure()) return;
      const std::string session = mount();
      done({"run", "--", "sh", "-c", "mkdir -p names && date +%N > names/5 && date +%N > a.txt"});
      std::vector<std::string> arguments = {verb, session};
      if (verb == "discard") arguments.insert(arguments.end(), {"names", "mapped"});
      SCOPED_TRACE(verb + ", trial " + std::to_string(trial));
      kill_during(session, arguments, milliseconds(20 + trial * 40));
      expect_answers({"sessions"});
      expect_answers({"run", "--", "true"});
      EXPECT_FALSE(is_mounted());
    }
  }
}

TEST_F(HostKill, WhatItIsAskedInItsLastMomentIsDoneWithoutIt) {
  for (const std::string verb : {"status", "diff", "update", "discard", "commit", "rollback", "unmount", "mount"}) {
    SCOPED_TRACE(verb);
    const std::string session = mount();
    write(in_mount("new"), verb);
    done({"unmount", session});
    std::vector<std::string> arguments = {verb, session};
    if (verb == "discard") arguments.emplace_back("new");
    if (verb == "mount") arguments = {"mount", mountpoint_, "--session", session};
    {
      const EndingHost ending(repository_ + "/escrow/sessions/" + session);
      // It was mounted nowhere.
      verb == "unmount" ? refused(1, "is not mounted", arguments) : expect_answers(arguments);
    }
    if (verb == "mount") done({"unmount", session});
    done({verb == "commit" ? "status" : "rollback", session});
  }
}

// Nothing of Escrow does that any more; another fault may.
TEST_F(HostKill, OneThatCannotEndIsLetGoByTheNextCommandThatNeedsIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may end another's connection where /sys/fs/fuse is not mounted";
  const std::string session = mount();
  done({"unmount", session});
  const std::string said = file("said");
  const std::string directory = repository_ + "/escrow/sessions/" + session;
  const pid_t host = ::fork();
  if (host == 0) {
    if (::freopen(said.c_str(), "w", stdout) == nullptr) ::_exit(1);
    ::execl(STUCK_HOST, STUCK_HOST, mountpoint_.c_str(), directory.c_str(), session.c_str(), nullptr);
    ::_exit(1);
  }
  ASSERT_TRUE(eventually([&] { return read(said) == "stuck\n"; }));
  // While it lives it is waited for no longer than it takes to see that it says nothing.
  stop(host);
  refused(125, ", stuck_host (" + std::to_string(host) + "), is stopped; `kill -CONT", {"status", session});
  expect_answers({"sessions"});
  expect_answers({"gc"});
  refused(2, "session escrow:" + session + ", which does not answer", {"mount", mountpoint_});
  ::kill(host, SIGKILL);
  ::usleep(200'000);
  ASSERT_FALSE(is_gone(host)) << "this test needs a process that cannot end";
  expect_answers({"sessions"});
  expect_answers({"status", session});
  EXPECT_TRUE(goes(host));
  ::waitpid(host, nullptr, 0);
  expect_answers({"run", "--", "true"});
  expect_answers({"commit", session});
  EXPECT_FALSE(is_mounted());
}

TEST_F(HostKill, OneThatIsStoppedIsNamedAndKeepsNobodyElseWaiting) {
  const std::string session = mount();
  write(in_mount("new"), "text");
  const pid_t host = host_of(session);
  ASSERT_GT(host, 0);
  stop(host);
  refused(125, "(" + std::to_string(host) + "), is stopped", {"commit", session});
  refused(125, "unless it had begun with the request, it drops it", {"rollback", session});
  expect_answers({"sessions"});
  expect_answers({"gc"});
  expect_answers({"run", "--", "true"});
  refused(2, "session escrow:" + session + ", which does not answer", {"mount", in_mount("below")});
  ::kill(host, SIGCONT);
  // What was asked for while it stood still is not done now: whoever asked was told that it failed.
  EXPECT_EQ(status_of(session, "state"), "open");
  write(in_mount("new"), "later");
  done({"commit", session});
  EXPECT_EQ(content("new"), "later");
}

}  // namespace
}  // namespace escrow::test
