// `--io` and `--opens` end to end: what a commit holds, what it waits for, and what a kill leaves.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "tests/mount/cli_fixture.h"
#include "tests/mount/worker.h"

namespace escrow::test {
namespace {

class IoSession : public EscrowCommands {
 protected:
  void SetUp() override {
    EscrowCommands::SetUp();
    if (IsSkipped()) return;
    const ProcessResult probe = escrow({"run", "--io", "passthrough", "--", "true"});
    if (probe.err.find("the kernel refuses it") != std::string::npos) GTEST_SKIP() << probe.err;
    EXPECT_EQ(0, probe.status) << probe.err;
  }
  // SIGKILL to the process that hosts the mount, and its mount taken away.
  void kill_host(const std::string& session) const {
    shell("for p in /proc/[0-9]*; do if ls -l $p/fd 2> /dev/null | grep -q 'sessions/" + session +
          "/lock'; then kill -9 ${p#/proc/}; fi; done");
    shell("umount -l '" + mountpoint_ + "'");
    ASSERT_TRUE(eventually([&] { return status_of(session, "attachment") != "mounted"; }));
  }
  std::uint64_t committed_number(const std::string& path) const {
    return std::stoull(shell("git -c safe.directory='*' --git-dir '" + repository_ + "' show main:" + path +
                             " | od -A n -t u8"));
  }
  std::string digest(const std::string& command) const { return shell(command + " | sha256sum"); }
  std::string committed_digest(const std::string& path) const {
    return digest("git -c safe.directory='*' --git-dir '" + repository_ + "' cat-file blob main:" + path);
  }
};

TEST_F(IoSession, StatusSaysWhatWasChosenAndWhy) {
  const std::string usual = mount();
  const std::string shown = done({"status", usual});
  EXPECT_NE(shown.find("cached, opens none (the default)"), std::string::npos) << shown;
  const std::string json = done({"status", usual, "--json"});
  EXPECT_NE(json.find("\"io\":{\"opens\":\"none\",\"data\":\"cached\""), std::string::npos) << json;
  unmount_outside(usual);
  const std::string daemon = mount({"-o", "opens=daemon"});
  EXPECT_NE(done({"status", daemon}).find("cached, opens daemon ("), std::string::npos);
  unmount_outside(daemon);
  const std::string passthrough = mount({"-o", "io=passthrough"});
  EXPECT_NE(done({"status", passthrough}).find("passthrough, opens daemon ("), std::string::npos);
}

TEST_F(IoSession, ImpossibleCombinationsAreRefused) {
  refused(2, "cannot be had with --opens none", {"mount", mountpoint_, "--io", "passthrough", "--opens", "none"});
  EXPECT_EQ(125, escrow({"run", "--io", "passthrough", "--opens", "none", "--", "true"}).status);
}

// A write-back cache: the kernel has the last word on sizes and times.
TEST_F(IoSession, WhatAWriteBackCacheCannotBearIsRefused) {
  write(file("policy.json"), R"({"default": "allow", "rules": []})");
  refused(2, "cannot be had with a policy",
          {"mount", mountpoint_, "--io", "writeback", "--policy", file("policy.json")});
  EXPECT_EQ(125, escrow({"run", "--io", "writeback", "--limit-staged-bytes", "1000", "--", "true"}).status);
  const std::string session = mount({"--io", "writeback"});
  EXPECT_NE(done({"status", session}).find("writeback, opens none ("), std::string::npos);
  write(in_mount("a.txt"), "mine");
  refused(1, "mounted with --io writeback", {"discard", session, "a.txt"});
  refused(1, "mounted with --io writeback", {"update", session});
  unmount_outside(session);
  done({"discard", session, "a.txt"});
  done({"update", session});
}

TEST_F(IoSession, ACommitHasExactlyTheBytesThatWereWrittenBack) {
  const std::string script =
      "head -c 20000000 /dev/urandom > big; for i in 1 2 3 4 5 6; do for j in 1 2 3; do echo $i $j; done > f$i; done; "
      "printf edit | dd of=big bs=1 seek=7654321 conv=notrunc status=none; rm a.txt; sha256sum big f* > sums";
  const ProcessResult result = escrow({"run", "--io", "writeback", "--", "sh", "-c", script});
  ASSERT_EQ(0, result.status) << result.err;
  done({"mount", mountpoint_, "--io", "writeback"});
  EXPECT_EQ("ok", shell("cd '" + mountpoint_ + "' && sha256sum --quiet -c sums && echo ok"));
}

// Two files, one always written before the other, with pauses of so many microseconds.
class WriteBackMoment : public IoSession, public testing::WithParamInterface<useconds_t> {};
INSTANTIATE_TEST_SUITE_P(Pauses, WriteBackMoment, testing::Values(0, 1000, 50'000));

TEST_P(WriteBackMoment, ALiveCommitHasOneMomentOrIsRefused) {
  const std::string session = mount({"--io", "writeback"});
  const auto write_in_turn = [&](useconds_t pause, const std::function<void()>& has_begun) {
    const int first = ::open(in_mount("first").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    const int second = ::open(in_mount("second").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    for (std::uint64_t count = 1;; ++count) {
      if (::pwrite(first, &count, sizeof count, 0) < 0 || ::pwrite(second, &count, sizeof count, 0) < 0) return 1;
      if (count == 10) has_begun();
      if (pause > 0) ::usleep(pause);
    }
  };
  auto writer = std::make_unique<Worker>([&](const auto& begun) { return write_in_turn(GetParam(), begun); });
  ASSERT_TRUE(writer->has_begun());
  const std::string before = head();
  if (const ProcessResult result = escrow({"commit", session}); result.status != 0) {
    EXPECT_NE(result.err.find("programs go on writing to it"), std::string::npos) << result.err;
    EXPECT_EQ(before, head());
    EXPECT_TRUE(writer->goes_on()) << "nobody was refused anything";
    writer.reset();
    done({"commit", session});
  }
  const std::uint64_t first = committed_number("first"), second = committed_number("second");
  EXPECT_TRUE(first == second || first == second + 1) << first << " " << second;
}

TEST_F(IoSession, ACommitHasExactlyTheBytesThatWerePassedThrough) {
  const std::string session = mount({"--io", "passthrough"});
  shell("head -c 20000000 /dev/urandom > '" + file("bytes") + "' && cp '" + file("bytes") + "' '" + in_mount("big") +
        "' && cp '" + file("bytes") + "' '" + in_mount("patched") + "' && printf edit | dd of='" + in_mount("patched") +
        "' bs=1 seek=7654321 conv=notrunc status=none && rm '" + in_mount("a.txt") + "'");
  const std::string patched = digest("cat '" + in_mount("patched") + "'");
  done({"commit", session});
  EXPECT_EQ(digest("cat '" + file("bytes") + "'"), committed_digest("big"));
  EXPECT_EQ(patched, committed_digest("patched"));
  EXPECT_NE(patched, committed_digest("big"));
}

TEST_F(IoSession, ALiveCommitIsRefusedWhileAPassedThroughFileIsOpenForWriting) {
  const std::string session = mount({"--io", "passthrough"});
  const int fd = ::open(in_mount("held").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_EQ(::write(fd, "before", 6), 6);
  const std::string before = head();
  refused(1, "has held open for writing or mapped", {"commit", session});
  EXPECT_EQ(before, head());
  ASSERT_EQ(::write(fd, " after", 6), 6) << "the session goes on as it was";
  ::close(fd);
  done({"commit", session});
  EXPECT_EQ("before after", content("held"));
}

// The kernel tells nobody of a mapping: the file was closed long ago.
TEST_F(IoSession, ALiveCommitIsRefusedWhileAPassedThroughFileIsMapped) {
  const std::string session = mount({"--io", "passthrough"});
  int pipes[2];
  ASSERT_EQ(0, ::pipe2(pipes, O_CLOEXEC));
  const pid_t child = ::fork();
  if (child == 0) {
    const int fd = ::open(in_mount("mapped").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (::ftruncate(fd, 4096) != 0) ::_exit(1);
    char* memory = static_cast<char*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ::close(fd);
    memory[0] = 'm';
    if (::write(pipes[1], "x", 1) != 1) ::_exit(1);
    ::pause();
  }
  char byte;
  ASSERT_EQ(1, ::read(pipes[0], &byte, 1));
  ::usleep(100'000);
  refused(1, "has mapped open for writing or mapped", {"commit", session});
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  done({"commit", session});
  EXPECT_EQ("m", git("show main:mapped | tr -d '\\0'"));
}

TEST_F(IoSession, AReaderDoesNotHoldUpACommit) {
  const std::string session = mount({"--io", "passthrough"});
  write(in_mount("read"), "bytes");
  const int fd = ::open(in_mount("read").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  done({"commit", session});
  ::close(fd);
  EXPECT_EQ("bytes", content("read"));
}

TEST_F(IoSession, AfterAKillSyncedAndAcknowledgedBytesAreThere) {
  const std::string session = mount({"--io", "passthrough"});
  const int fd = ::open(in_mount("kept").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_EQ(::write(fd, "synced ", 7), 7);
  ASSERT_EQ(::fsync(fd), 0);
  ASSERT_EQ(::write(fd, "written", 7), 7);
  kill_host(session);
  ::close(fd);
  const std::string again = done({"mount", mountpoint_, "--session", session, "--io", "passthrough"});
  EXPECT_EQ("synced written", read(in_mount("kept")));
  done({"commit", session});
  EXPECT_EQ("synced written", content("kept"));
}

// The host is gone, the kernel goes on: the writer's file is not cut off from the staging file.
TEST_F(IoSession, AWriterThatOutlivesTheHostHoldsUpTheCommitOfTheNext) {
  const std::string session = mount({"--io", "passthrough"});
  const int fd = ::open(in_mount("held").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_EQ(::write(fd, "one", 3), 3);
  ASSERT_EQ(::fsync(fd), 0);
  kill_host(session);
  ASSERT_EQ(::write(fd, " two", 4), 4);
  refused(1, "has held open for writing or mapped", {"commit", session});
  ::close(fd);
  done({"commit", session});
  EXPECT_EQ("one two", content("held"));
}

TEST_F(IoSession, ARunCommitsWhatItPassedThroughAndLeftOpen) {
  const std::string script =
      "exec 7> held; echo one >&7; (sleep 1000 & echo two >&7); python3 -c \"\n"
      "import mmap, os\n"
      "fd = os.open('mapped', os.O_RDWR | os.O_CREAT)\n"
      "os.ftruncate(fd, 4096)\n"
      "m = mmap.mmap(fd, 4096); os.close(fd); m[0:3] = b'map'\n\"; exit 0";
  const ProcessResult result = escrow({"run", "--io", "passthrough", "--", "sh", "-c", script});
  EXPECT_EQ(0, result.status) << result.err;
  EXPECT_EQ("one\ntwo", content("held"));
  EXPECT_EQ("map", git("show main:mapped | tr -d '\\0'"));
}

// A process from outside that will not let go: the work is not lost, and not half a commit.
TEST_F(IoSession, ARunWithAForeignWriterStaysOpenToBeCommittedByHand) {
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string wait = "echo first > held; touch '" + file("up") + "'; while [ ! -e '" + file("go") +
                             "' ]; do sleep 0.01; done";
    const ProcessResult result =
        escrow({"run", "--mountpoint", mountpoint_, "--io", "passthrough", "--", "sh", "-c", wait});
    ::_exit(result.status);
  }
  ASSERT_TRUE(eventually([&] { return ::access(file("up").c_str(), F_OK) == 0; }));
  const int fd = ::open(in_mount("held").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, "second\n", 7), 7);
  const std::string before = head();
  write(file("go"), "");
  int status = 0;
  ASSERT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_EQ(125, WEXITSTATUS(status));
  EXPECT_EQ(before, head());
  ::close(fd);
  const std::string session = shell("ls '" + repository_ + "/escrow/sessions'");
  done({"commit", session});
  EXPECT_EQ("first\nsecond", content("held"));
}

}  // namespace
}  // namespace escrow::test
