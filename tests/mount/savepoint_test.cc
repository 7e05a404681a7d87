// Savepoints of a mounted session on the real kernel, in every combination of opens and data.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "tests/mount/cli_fixture.h"
#include "tests/mount/worker.h"

namespace escrow::test {
namespace {

namespace fs = std::filesystem;

std::string read_from(int descriptor) {
  std::string text(4096, '\0');
  const ssize_t got = ::pread(descriptor, text.data(), text.size(), 0);
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return text;
}

class Savepoint : public EscrowCommands, public testing::WithParamInterface<std::vector<std::string>> {
 protected:
  std::string mount_here(std::vector<std::string> more = {}) const {
    std::vector<std::string> options = GetParam();
    options.insert(options.end(), more.begin(), more.end());
    return mount(options);
  }
  void savepoint(const std::string& verb, const std::string& session, const std::string& name) const {
    done({"savepoint", verb, session, name});
  }
};

TEST_P(Savepoint, GoesBackWithTheMountUpAndCanBeUndone) {
  const std::string session = mount_here();
  write(in_mount("a.txt"), "before");
  write(in_mount("dir/new"), std::string(300'000, 'n'));
  fs::create_directory(in_mount("empty"));
  fs::create_directory(in_mount("work"));
  write(in_mount("work/kept"), "k");
  fs::create_symlink("a.txt", in_mount("to"));
  fs::create_hard_link(in_mount("a.txt"), in_mount("second"));
  ASSERT_EQ(::chmod(in_mount("dir/b.txt").c_str(), 0640), 0);
  savepoint("create", session, "first");

  write(in_mount("a.txt"), "after, and longer than it was");
  ASSERT_EQ(::truncate(in_mount("dir/new").c_str(), 5), 0);
  fs::remove(in_mount("empty"));
  fs::remove(in_mount("to"));
  fs::remove_all(in_mount("dir/sub"));
  fs::rename(in_mount("dir"), in_mount("moved"));
  write(in_mount("third"), "3");
  ASSERT_EQ(::chmod(in_mount("moved").c_str(), 0700), 0);
  EXPECT_NE(done({"savepoint", "diff", session, "first", "--name-status"}).find("M\ta.txt"), std::string::npos);
  const std::string working = fs::current_path();
  fs::current_path(in_mount("work"));  // as a shell that works in there
  write("added", "x");

  savepoint("restore", session, "first");
  EXPECT_TRUE(fs::exists("kept")) << "the directory is the same one";
  EXPECT_FALSE(fs::exists("added"));
  fs::current_path(working);
  EXPECT_EQ(read(in_mount("a.txt")), "before");
  EXPECT_EQ(read(in_mount("second")), "before");
  EXPECT_EQ(fs::hard_link_count(in_mount("a.txt")), 2u);
  EXPECT_EQ(read(in_mount("dir/new")), std::string(300'000, 'n'));
  EXPECT_TRUE(fs::is_directory(in_mount("empty")));
  EXPECT_EQ(fs::read_symlink(in_mount("to")), "a.txt");
  EXPECT_EQ(read(in_mount("dir/sub/c.txt")), content("dir/sub/c.txt") + "\n");
  EXPECT_FALSE(fs::exists(in_mount("moved")));
  EXPECT_FALSE(fs::exists(in_mount("third")));
  EXPECT_EQ(static_cast<unsigned>(fs::status(in_mount("dir/b.txt")).permissions()), 0640u);
  EXPECT_EQ(done({"savepoint", "diff", session, "first"}), "");
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(mountpoint_)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"a.txt", "dir", "empty", "second", "to", "work"}));

  savepoint("restore", session, "before-restore-1");
  EXPECT_EQ(read(in_mount("a.txt")), "after, and longer than it was");
  EXPECT_EQ(read(in_mount("moved/new")), "nnnnn");
  EXPECT_FALSE(fs::exists(in_mount("dir")));
  done({"commit", session});
  EXPECT_EQ(content("moved/new"), "nnnnn");
}

TEST_P(Savepoint, AnOpenFileStaysWhatItWasForWhoHasItOpen) {
  const std::string session = mount_here();
  write(in_mount("log"), "one\n");
  savepoint("create", session, "first");
  const int log = ::open(in_mount("log").c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
  ASSERT_EQ(::write(log, "two\n", 4), 4);
  savepoint("restore", session, "first");
  EXPECT_EQ(read(in_mount("log")), "one\n");
  EXPECT_EQ(read_from(log), "one\ntwo\n");
  ASSERT_EQ(::write(log, "three\n", 6), 6);
  EXPECT_EQ(read_from(log), "one\ntwo\nthree\n");
  EXPECT_EQ(read(in_mount("log")), "one\n");
  struct stat status {};
  ASSERT_EQ(::fstat(log, &status), 0);
  EXPECT_EQ(status.st_nlink, 0u);
  ::close(log);
  write(in_mount("log"), "1");
  done({"commit", session});
  EXPECT_EQ(content("log"), "1");
}

class SavepointUnderWriters : public Savepoint {};

TEST_P(SavepointUnderWriters, ProgramsGoOnWhileSavepointsComeAndGo) {
  const std::string session = mount_here();
  Worker writer([&](const std::function<void()>& has_begun) {
    for (std::uint64_t count = 0;; ++count) {
      const std::string name = in_mount("f" + std::to_string(count % 7));
      const int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
      if (file < 0) return errno;
      if (::write(file, &count, sizeof count) != sizeof count) return errno;
      ::close(file);
      if (count == 20) has_begun();
    }
  });
  ASSERT_TRUE(writer.has_begun());
  for (int round = 0; round < 4; ++round) {
    const std::string name = "s" + std::to_string(round);
    savepoint("create", session, name);
    savepoint("restore", session, name);
    savepoint("drop", session, name);
    ASSERT_TRUE(writer.goes_on()) << "errno " << writer.wait() << " in round " << round;
  }
}

TEST_P(Savepoint, OutlivesAKilledHostAndAnotherMount) {
  const std::string session = mount_here();
  write(in_mount("a.txt"), "before");
  savepoint("create", session, "first");
  write(in_mount("a.txt"), "after");
  unmount_outside(session);
  EXPECT_NE(done({"savepoint", "list", session}).find("first"), std::string::npos);
  savepoint("create", session, "detached");
  savepoint("restore", session, "first");
  std::vector<std::string> again = GetParam();
  again.insert(again.begin(), {"mount", mountpoint_, "--session", session});
  done(again);
  EXPECT_EQ(read(in_mount("a.txt")), "before");
  savepoint("restore", session, "detached");
  EXPECT_EQ(read(in_mount("a.txt")), "after");
  for (const char* name : {"first", "detached", "before-restore-1", "before-restore-2"})
    savepoint("drop", session, name);
  EXPECT_EQ(done({"savepoint", "list", session}), "Session " + session + " has no savepoint.");
  EXPECT_EQ(read(in_mount("a.txt")), "after");
}

INSTANTIATE_TEST_SUITE_P(Every, Savepoint,
                         testing::Values(std::vector<std::string>{}, std::vector<std::string>{"--opens", "daemon"},
                                         std::vector<std::string>{"--io", "writeback"},
                                         std::vector<std::string>{"--io", "passthrough"}),
                         [](const auto& chosen) { return chosen.param.empty() ? "cached" : chosen.param.back(); });

INSTANTIATE_TEST_SUITE_P(Every, SavepointUnderWriters,
                         testing::Values(std::vector<std::string>{}, std::vector<std::string>{"--opens", "daemon"},
                                         std::vector<std::string>{"--io", "writeback"}));

class SavepointCommands : public EscrowCommands {};

TEST_F(SavepointCommands, WhatCannotBeIsRefusedWithAReason) {
  const std::string session = mount();
  refused(2, "letters, digits", {"savepoint", "create", session, "../x"});
  refused(1, "no savepoint 'none'", {"savepoint", "restore", session, "none"});
  refused(1, "no savepoint 'none'", {"savepoint", "drop", session, "none"});
  refused(1, "no savepoint 'none'", {"savepoint", "diff", session, "none"});
  done({"savepoint", "create", session, "one"});
  refused(1, "already", {"savepoint", "create", session, "one"});
  write(file("in/a.txt"), "theirs");
  done({"import", file("in")});
  done({"update", session});
  refused(1, "another head", {"savepoint", "restore", session, "one"});
  done({"rollback", session});
  refused(1, "already rolled_back", {"savepoint", "list", session});
}

TEST_F(SavepointCommands, AFileThatTheKernelWritesByItselfHoldsASavepointUp) {
  const std::string session = mount({"--io", "passthrough"});
  const int held = ::open(in_mount("big").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_EQ(::write(held, "x", 1), 1);
  refused(1, "has big open", {"savepoint", "create", session, "one"});
  ::close(held);
  done({"savepoint", "create", session, "one"});
  write(in_mount("big"), "changed");
  done({"savepoint", "restore", session, "one"});
  EXPECT_EQ(read(in_mount("big")), "x");
}

}  // namespace
}  // namespace escrow::test
