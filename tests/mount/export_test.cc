// A session's staged state in a file, and back in another clone of the repository, on the real kernel.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/mount/cli_fixture.h"
#include "tests/mount/worker.h"

namespace escrow::test {
namespace {

namespace fs = std::filesystem;

class Export : public EscrowCommands {
 protected:
  void SetUp() override {
    EscrowCommands::SetUp();
    shell("git clone -q --bare " + repository_ + " " + other_);
    done_there({"init"});
  }

  // In the other clone.
  ProcessResult there(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--repo", other_});
    return run_escrow(arguments, {.directory = directory_.path(), .environment = {}, .input = {}});
  }
  std::string done_there(const std::vector<std::string>& arguments) const {
    const ProcessResult result = there(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out.substr(0, result.out.find('\n'));
  }
  std::string mount_there(const std::string& session) const {
    fs::create_directories(other_mount_);
    done_there({"mount", other_mount_, "--session", session});
    return other_mount_;
  }
  // Nothing of a session is there, neither its row nor a directory.
  void expect_nothing_there() const {
    EXPECT_EQ(there({"sessions"}).out.find("open"), std::string::npos);
    const std::string sessions = other_ + "/escrow/sessions";
    EXPECT_TRUE(!fs::exists(sessions) || fs::is_empty(sessions));
  }
  void refused_there(std::string_view words, const std::vector<std::string>& arguments) const {
    const ProcessResult result = there(arguments);
    EXPECT_NE(result.status, 0);
    EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
  std::string bytes_of(const std::string& path) const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string other_ = directory_.path() + "/other.git";
  std::string other_mount_ = directory_.path() + "/other-mnt";
  std::string exported_ = directory_.path() + "/work.escrow";

  void TearDown() override {
    if (fs::exists(other_mount_)) shell("umount " + other_mount_ + " 2>/dev/null || true");
    EscrowCommands::TearDown();
  }
};

TEST_F(Export, ASessionIsTheSameInAnotherCloneOfTheRepository) {
  const std::string session = mount({"--xattr", "user", "--exclude", "*.tmp"});
  write(in_mount("a.txt"), "changed");
  fs::create_directories(in_mount("new/deep"));
  write(in_mount("new/deep/file"), std::string(700'000, 'n'));
  fs::create_directory(in_mount("empty"));
  fs::create_symlink("a.txt", in_mount("to"));
  fs::create_hard_link(in_mount("a.txt"), in_mount("second"));
  ASSERT_EQ(::mkfifo(in_mount("pipe").c_str(), 0610), 0);
  ASSERT_EQ(::setxattr(in_mount("new").c_str(), "user.colour", "red", 3, 0), 0);
  fs::rename(in_mount("dir/sub"), in_mount("moved"));
  ASSERT_EQ(::chmod(in_mount("dir/b.txt").c_str(), 0640), 0);
  write(in_mount("odd\n\xff name"), "odd");
  const int sparse = ::open(in_mount("sparse").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0755);
  ASSERT_EQ(::ftruncate(sparse, 300 << 20), 0);
  ASSERT_EQ(::pwrite(sparse, "end", 3, 200 << 20), 3);
  ::close(sparse);
  const timespec times[] = {{1000, 5}, {2000, 7}};  // accessed, modified
  ASSERT_EQ(::utimensat(AT_FDCWD, in_mount("new").c_str(), times, 0), 0);

  done({"export", session, exported_});
  write(in_mount("later"), "not in it");
  const std::string made = done_there({"import-session", exported_});
  const std::string there = mount_there(made);
  EXPECT_EQ(read(there + "/second"), "changed");
  EXPECT_EQ(fs::hard_link_count(there + "/a.txt"), 2u);
  EXPECT_EQ(read(there + "/new/deep/file"), std::string(700'000, 'n'));
  EXPECT_TRUE(fs::is_directory(there + "/empty"));
  EXPECT_EQ(fs::read_symlink(there + "/to"), "a.txt");
  EXPECT_TRUE(fs::is_fifo(there + "/pipe"));
  EXPECT_FALSE(fs::exists(there + "/dir/sub"));
  EXPECT_EQ(read(there + "/moved/c.txt"), content("dir/sub/c.txt") + "\n");
  EXPECT_EQ(static_cast<unsigned>(fs::status(there + "/dir/b.txt").permissions()), 0640u);
  EXPECT_EQ(read(there + "/dir/b.txt"), content("dir/b.txt") + "\n");
  EXPECT_EQ(read(there + "/odd\n\xff name"), "odd");
  EXPECT_EQ(fs::file_size(there + "/sparse"), std::uintmax_t{300} << 20);
  EXPECT_FALSE(fs::exists(there + "/later"));
  struct stat status {};
  ASSERT_EQ(::stat((there + "/new").c_str(), &status), 0);
  EXPECT_EQ(status.st_mtim.tv_sec, 2000);
  EXPECT_EQ(status.st_mtim.tv_nsec, 7);
  EXPECT_LT(fs::file_size(exported_), std::uintmax_t{4} << 20) << "holes are not written out";

  // The commits of both are one tree.
  fs::remove(in_mount("later"));
  fs::remove(in_mount("sparse"));
  fs::remove(there + "/sparse");
  EXPECT_EQ(done({"savepoint", "list", session}), "Session " + session + " has no savepoint.");
  done({"commit", session});
  done_there({"commit", made});
  EXPECT_EQ(git("rev-parse main^{tree}"), shell("git --git-dir=" + other_ + " rev-parse main^{tree}"));
}

TEST_F(Export, WhatIsOnlyMovedIsNotSentAndTheSessionHasGitInside) {
  shell("mkdir -p more/deep/er; head -c 1000000 /dev/urandom > more/big; echo 1 > more/first; echo 2 > more/second; "
        "head -c 1000000 /dev/urandom > more/deep/er/one",
        {.directory = directory_.path(), .environment = {}, .input = {}});
  done({"import", file("more")});
  shell("git -C '" + other_ + "' fetch -q origin +main:main");
  const std::string session = mount();
  shell("set -e; mv big moved; chmod +x moved; ln moved again; mv first second; mv deep/er d; mv d e; touch e/new; "
        "mv moved last; git status --short > /dev/null",
        {.directory = mountpoint_, .environment = {}, .input = {}});
  done({"export", session, exported_});
  EXPECT_LT(fs::file_size(exported_), 64u << 10);
  const std::string id = done_there({"import-session", exported_});
  const std::string mounted = mount_there(id);
  shell("git diff --stat", {.directory = mounted, .environment = {}, .input = {}});
  done({"commit", session, "-m", "moved"});
  done_there({"commit", id, "-m", "moved"});
  EXPECT_EQ(shell("git -C '" + other_ + "' rev-parse 'main^{tree}'"), git("rev-parse 'main^{tree}'"));
}

TEST_F(Export, ExtendedAttributesComeAlong) {
  const std::string session = mount({"--xattr", "user"});
  write(in_mount("a.txt"), "x");
  ASSERT_EQ(::setxattr(in_mount("a.txt").c_str(), "user.colour", "red", 3, 0), 0);
  done({"export", session, exported_});
  const std::string made = done_there({"import-session", exported_});
  fs::create_directories(other_mount_);
  done_there({"mount", other_mount_, "--session", made, "--xattr", "user"});
  char value[8] = {};
  EXPECT_EQ(::getxattr((other_mount_ + "/a.txt").c_str(), "user.colour", value, sizeof value), 3);
}

// The repository notes the hand that made it, which is this user's in both places.
TEST_F(Export, ARepositoryThatWasMovedOutOfItsNameComesAlong) {
  const std::string session = mount();
  shell("git init -q sub && mv sub/.git store", {.directory = mountpoint_, .environment = {}, .input = {}});
  done({"export", session, exported_});
  const std::string mounted = mount_there(done_there({"import-session", exported_}));
  EXPECT_EQ(shell("git -C '" + mounted + "' --git-dir=store rev-parse --is-bare-repository"), "false");
}

TEST_F(Export, ASessionWithWritersIsExportedAtOneMoment) {
  const std::string session = mount();
  Worker writer([&](const std::function<void()>& has_begun) {
    // The second file never has a number that the first one did not have before.
    for (std::uint64_t count = 1;; ++count) {
      for (const char* name : {"first", "second"}) {
        const int file = ::open(in_mount(name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (file < 0) return errno;
        if (::pwrite(file, &count, sizeof count, 0) != sizeof count) return errno;
        ::close(file);
      }
      if (count == 20) has_begun();
    }
  });
  ASSERT_TRUE(writer.has_begun());
  for (int round = 0; round < 3; ++round) {
    done({"export", session, exported_});
    const std::string made = done_there({"import-session", exported_});
    const std::string there = mount_there(made);
    std::uint64_t first = 0, second = 0;
    std::ifstream(there + "/first", std::ios::binary).read(reinterpret_cast<char*>(&first), sizeof first);
    std::ifstream(there + "/second", std::ios::binary).read(reinterpret_cast<char*>(&second), sizeof second);
    EXPECT_GE(second, 1u);
    EXPECT_TRUE(first == second || first == second + 1) << first << " and " << second;
    done_there({"rollback", made});
    ASSERT_TRUE(writer.goes_on()) << writer.wait();
  }
}

TEST_F(Export, WhatWasCutShortOrAlteredIsRefusedAndLeavesNothing) {
  const std::string session = mount();
  write(in_mount("a.txt"), "changed");
  write(in_mount("new"), "some bytes");
  fs::remove(in_mount("dir/b.txt"));
  done({"export", session, exported_});
  const std::string whole = bytes_of(exported_);
  ASSERT_GT(whole.size(), 200u);
  const std::string broken = file("broken");
  // Every few bytes: a start of the command line each.
  for (std::size_t at = 0; at < whole.size(); at += std::max<std::size_t>(1, whole.size() / 40)) {
    write(broken, whole.substr(0, at));
    refused_there("no whole exported session", {"import-session", broken});
    std::string altered = whole;
    altered[at] = static_cast<char>(altered[at] ^ 1);
    write(broken, altered);
    refused_there("", {"import-session", broken});
  }
  write(broken, whole + "x");
  refused_there("follows its end", {"import-session", broken});
  expect_nothing_there();
  done_there({"import-session", exported_});
}

TEST_F(Export, ARepositoryWithoutTheBaseCommitIsRefused) {
  const std::string session = mount();
  write(in_mount("a.txt"), "x");
  done({"commit", session});
  const std::string newer = mount();
  write(in_mount("a.txt"), "y");
  done({"export", newer, exported_});
  refused_there("does not have its base", {"import-session", exported_});
  expect_nothing_there();
  shell("git -C " + other_ + " fetch -q " + repository_ + " main:theirs");
  refused_there("no branch 'none'", {"import-session", exported_, "--branch", "none"});
  EXPECT_NE(done_there({"import-session", exported_, "--branch", "theirs"}), "");
}

TEST_F(Export, AKilledImportLeavesNothing) {
  const std::string session = mount();
  for (int index = 0; index < 50; ++index) write(in_mount("f" + std::to_string(index)), std::string(50'000, 'x'));
  done({"export", session, exported_});
  const std::string whole = bytes_of(exported_);
  for (const std::size_t part : {std::size_t{600}, whole.size() / 2, whole.size() - 1}) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::dup2(ends[0], STDIN_FILENO);
      ::close(ends[1]);
      ::execl(ESCROW_BINARY, "escrow", "--repo", other_.c_str(), "import-session", "-", nullptr);
      ::_exit(127);
    }
    ::close(ends[0]);
    std::string_view rest = std::string_view(whole).substr(0, part);
    while (!rest.empty()) {
      const ssize_t sent = ::write(ends[1], rest.data(), rest.size());
      ASSERT_GT(sent, 0);
      rest.remove_prefix(static_cast<std::size_t>(sent));
    }
    ASSERT_TRUE(eventually([&] {
      const std::string sessions = other_ + "/escrow/sessions";
      return fs::exists(sessions) && !fs::is_empty(sessions);
    }));
    ::kill(pid, SIGKILL);
    int how = 0;
    ::waitpid(pid, &how, 0);
    ::close(ends[1]);
    EXPECT_EQ(done_there({"sessions", "--json"}).find("\"open\""), std::string::npos);
    expect_nothing_there();
  }
}

TEST_F(Export, NamesThatGitRefusesAreLeftOutAndNamed) {
  const std::string session = mount();
  fs::create_directories(in_mount("below/.git"));
  write(in_mount("below/.git/config"), "x");
  write(in_mount("below/kept"), "k");
  const ProcessResult result = escrow({"export", session, exported_});
  EXPECT_NE(result.err.find("below/.git"), std::string::npos) << result.err;
  const std::string there = mount_there(done_there({"import-session", exported_}));
  EXPECT_EQ(read(there + "/below/kept"), "k");
  EXPECT_FALSE(fs::exists(there + "/below/.git"));
}

TEST_F(Export, ADetachedSessionIsExported) {
  const std::string session = mount();
  write(in_mount("a.txt"), "changed");
  unmount_outside(session);
  write(exported_, "what was there before");
  done({"export", session, exported_});
  EXPECT_EQ(read(mount_there(done_there({"import-session", exported_})) + "/a.txt"), "changed");
}

TEST_F(Export, ASerializableSessionIsRefused) {
  const std::string session = mount({"--isolation", "serializable"});
  refused(1, "serializable", {"export", session, exported_});
  EXPECT_FALSE(fs::exists(exported_));
}

TEST_F(Export, ASessionThatHasEndedIsRefused) {
  const std::string session = mount();
  done({"rollback", session});
  refused(1, "already rolled_back", {"export", session, exported_});
  EXPECT_FALSE(fs::exists(exported_));
}

}  // namespace
}  // namespace escrow::test
