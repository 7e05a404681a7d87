// The mount table of a mounted session, end to end: entries added, replaced and removed while programs use them.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "tests/mount/cli_fixture.h"

namespace escrow::test {
namespace {

struct Directory {
  explicit Directory(const std::string& path) : descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}
  ~Directory() { ::close(descriptor); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  std::string read(const char* name) const {
    const int file = ::openat(descriptor, name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return "errno " + std::to_string(errno);
    char text[64] = {};
    const ssize_t count = ::read(file, text, sizeof text);
    ::close(file);
    return count < 0 ? "errno of read " + std::to_string(errno) : std::string(text, static_cast<std::size_t>(count));
  }
  const int descriptor;
};

class LiveMounts : public EscrowCommands {
 protected:
  void SetUp() override {
    EscrowCommands::SetUp();
    if (IsSkipped()) return;
    make("old", "old");
    make("new", "new");
  }
  // A directory with two files that have this text, one of them a level down, and one with its name.
  void make(const std::string& name, const std::string& text) const {
    shell("mkdir -p '" + name + "/sub' && printf '" + text + "' | tee '" + name + "/one' '" + name + "/sub/two' '" +
              name + "/" + text + "' > /dev/null",
          {.directory = directory_.path(), .environment = {}, .input = {}});
  }
  std::string change(const std::string& verb, const std::string& session, std::vector<std::string> rest) const {
    rest.insert(rest.begin(), {"mounts", verb, session});
    return done(rest);
  }
  std::string inject(const std::string& verb, const std::string& session, const std::string& path,
                     const std::string& from, const std::string& more = "") const {
    return change(verb, session, {"--inject", path + "=" + file(from) + more});
  }
  std::string listed(const std::string& path) const { return shell("ls -A '" + path + "' | tr '\n' ' '"); }
  static ino_t inode(const std::string& path) {
    struct stat found {};
    return ::stat(path.c_str(), &found) == 0 ? found.st_ino : 0;
  }
  std::string copies() const {
    return shell("find '" + repository_ + "/escrow/sessions' -maxdepth 2 -name 'injected.*' | wc -l");
  }
};

// What each mode of I/O is asked for with.
class EveryLiveMounts : public LiveMounts, public testing::WithParamInterface<std::vector<std::string>> {};

TEST_P(EveryLiveMounts, EntriesComeAreReplacedWholeAndGo) {
  const std::string session = mount(GetParam());
  EXPECT_NE(0, ::access(in_mount("opt/tools/one").c_str(), F_OK)) << "the kernel remembers that it is not there";
  EXPECT_EQ("a.txt dir ", listed(mountpoint_)) << "and what is listed";
  const std::string overlay = ",mode=overlay";
  inject("add", session, "opt/tools", "old", overlay);
  inject("add", session, "dir/sub", "old", overlay);
  EXPECT_EQ("a.txt dir opt ", listed(mountpoint_));
  EXPECT_EQ("tools ", listed(in_mount("opt")));
  EXPECT_EQ("old one sub ", listed(in_mount("dir/sub"))) << "the repository's directory is hidden";
  EXPECT_EQ("old", read(in_mount("opt/tools/sub/two")));
  const ino_t beside = inode(in_mount("dir/sub/one"));

  const Directory within(in_mount("opt/tools"));
  const int open_file = ::open(in_mount("opt/tools/one").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(open_file, 0);
  inject("replace", session, "opt/tools", "new", overlay);
  EXPECT_EQ("new one sub ", listed(in_mount("opt/tools")));
  EXPECT_EQ("new", read(in_mount("opt/tools/one")));
  EXPECT_EQ("new", read(in_mount("opt/tools/sub/two")));
  EXPECT_EQ("old", within.read("one")) << "who is in the old one has all of it";
  EXPECT_EQ("old", within.read("sub/two"));
  EXPECT_EQ(3, ::pwrite(open_file, "mad", 3, 0)) << "a file that is open goes on";
  char text[4] = {};
  EXPECT_EQ(3, ::pread(open_file, text, 3, 0));
  EXPECT_STREQ("mad", text);
  EXPECT_EQ("new", read(in_mount("opt/tools/one")));
  EXPECT_EQ(beside, inode(in_mount("dir/sub/one"))) << "what lies beside is what it was";

  change("remove", session, {"opt/tools"});
  EXPECT_EQ("a.txt dir ", listed(mountpoint_));
  EXPECT_NE(0, ::access(in_mount("opt").c_str(), F_OK));
  EXPECT_EQ(3, ::pread(open_file, text, 3, 0));
  change("remove", session, {"dir/sub"});
  EXPECT_EQ("c.txt ", listed(in_mount("dir/sub"))) << "what it hid is seen again";
  ::close(open_file);
  EXPECT_EQ("0", shell("ls -lR '" + mountpoint_ + "' | grep -c '?' || true"));
}

INSTANTIATE_TEST_SUITE_P(Every, EveryLiveMounts,
                         testing::Values(std::vector<std::string>{}, std::vector<std::string>{"--opens", "daemon"},
                                         std::vector<std::string>{"--io", "passthrough"},
                                         std::vector<std::string>{"--io", "writeback"}));
INSTANTIATE_TEST_SUITE_P(WithoutIoUring, EveryLiveMounts,
                         testing::Values(std::vector<std::string>{"--io-uring", "off"}));

// Readers by path and readers from within, for as long as the table changes.
TEST_F(LiveMounts, NoReaderEverMeetsHalfOfAReplacement) {
  const std::string session = mount();
  inject("add", session, "tools", "old");
  std::atomic<bool> is_over = false;
  std::atomic<int> wrong = 0, reads = 0;
  std::thread by_path([&] {
    while (!is_over) {
      for (const char* name : {"tools/one", "tools/sub/two"}) {
        const Directory top(mountpoint_);
        const std::string found = top.read(name);
        ++reads;
        if (found == "old" || found == "new") continue;
        ++wrong;
        ADD_FAILURE() << name << " is " << found;
      }
    }
  });
  std::thread from_within([&] {
    while (!is_over) {
      const Directory top(in_mount("tools"));
      const std::string one = top.read("one"), two = top.read("sub/two");
      if (one == two && (one == "old" || one == "new")) continue;
      ++wrong;
      ADD_FAILURE() << one << " beside " << two;
    }
  });
  for (int round = 0; round < 20 && wrong == 0; ++round) {
    const std::string now = round % 2 == 0 ? "new" : "old";
    inject("replace", session, "tools", now);
    EXPECT_EQ(now, read(in_mount("tools/one"))) << "from when the command is done";
    EXPECT_EQ(now + " one sub ", now == "new" ? listed(in_mount("tools")) : "old one sub ");
  }
  is_over = true;
  by_path.join();
  from_within.join();
  EXPECT_GT(reads, 100);
}

TEST_F(LiveMounts, OfReplacedCopiesTheDiskKeepsOnlyThoseThatSomebodyIsIn) {
  const std::string session = mount();
  inject("add", session, "tools", "old");
  for (int round = 0; round < 5; ++round) {
    inject("replace", session, "tools", "new");
    EXPECT_EQ("new", read(in_mount("tools/sub/two")));
  }
  EXPECT_LE(std::stoi(copies()), 2);
  const auto within = std::make_unique<Directory>(in_mount("tools"));
  for (int round = 0; round < 3; ++round) inject("replace", session, "tools", "old");
  EXPECT_EQ("new", within->read("one"));
  EXPECT_LE(std::stoi(copies()), 3);
}

TEST_F(LiveMounts, TheTableIsKeptWithTheSessionAndItsOldCopiesAreNot) {
  const std::string session = mount();
  inject("add", session, "tools", "old");
  inject("replace", session, "tools", "new", ",mode=overlay");
  change("add", session, {"--mount", "path=tmp,source=scratch", "--mount", "path=was,source=rev:main"});
  write(in_mount("tools/one"), "mine");
  write(in_mount("tmp/note"), "kept");
  unmount_outside(session);
  change("remove", session, {"was"});
  mount({"--session", session});
  EXPECT_EQ("a.txt dir tmp tools ", listed(mountpoint_));
  EXPECT_EQ("mine", read(in_mount("tools/one")));
  EXPECT_EQ("kept", read(in_mount("tmp/note")));
  EXPECT_EQ("1", copies());
  change("replace", session, {"--mount", "path=tmp,source=scratch"});
  EXPECT_EQ("", listed(in_mount("tmp"))) << "replaced whole";
  done({"commit", session});
  EXPECT_EQ("a.txt\ndir/b.txt\ndir/sub/c.txt", git("ls-tree -r --name-only main"));
}

TEST_F(LiveMounts, AHostDirectoryThatWasRemovedIsClosedToWhoIsInIt) {
  const std::string session = mount({"--opens", "daemon"});
  change("add", session, {"--mount", "path=host,source=host:" + file("old") + ",mode=read-write"});
  write(in_mount("host/fresh"), "through");
  EXPECT_EQ("through", read(file("old/fresh")));
  const Directory within(in_mount("host")), below(in_mount("host/sub"));
  const int open_file = ::open(in_mount("host/one").c_str(), O_RDONLY | O_CLOEXEC);
  change("replace", session, {"--mount", "path=host,source=host:" + file("new")});
  EXPECT_EQ("new", read(in_mount("host/one")));
  for (const Directory* one : {&within, &below}) {
    EXPECT_EQ("errno " + std::to_string(ENOENT), one->read(one == &within ? "one" : "two"));
    EXPECT_NE(0, ::mkdirat(one->descriptor, "more", 0755));
  }
  EXPECT_NE(0, ::renameat(below.descriptor, "two", within.descriptor, "moved"));
  EXPECT_NE(0, ::unlinkat(within.descriptor, "fresh", 0));
  char text[4] = {};
  EXPECT_EQ(3, ::pread(open_file, text, 3, 0));
  EXPECT_STREQ("old", text);
  ::close(open_file);
  EXPECT_EQ("fresh old one sub ", listed(file("old")));
  change("remove", session, {"host"});
  EXPECT_EQ("a.txt dir ", listed(mountpoint_));
}

TEST_F(LiveMounts, WhatCannotBeLeavesTheTableAsItWas) {
  const std::string session = mount();
  inject("add", session, "tools", "old");
  const auto refused_with = [&](const std::string& words, std::vector<std::string> rest,
                                const std::string& verb = "add") {
    rest.insert(rest.begin(), {"mounts", verb, session});
    const ProcessResult result = escrow(rest);
    EXPECT_NE(0, result.status);
    EXPECT_NE(std::string::npos, result.err.find(words)) << result.err;
  };
  refused_with("already", {"--inject", "tools=" + file("new")});
  refused_with("beside one another", {"--inject", "tools/x=" + file("new")});
  refused_with("beside one another", {"--inject", "tools/x=" + file("new")}, "replace");
  refused_with("No such file", {"--inject", "more=" + file("nowhere")});
  refused_with("No such file", {"--inject", "tools=" + file("nowhere")}, "replace");
  refused_with("component '.'", {"--inject", ".=" + file("new")});
  refused_with("--opens daemon", {"--mount", "path=host,source=host:" + file("new")});
  refused_with("the repository", {"--inject", "more=" + repository_});
  refused_with("no entry", {"more"}, "remove");
  refused_with("no entry", {"dir"}, "remove");
  refused_with("--mount, --inject or --cache", {});
  EXPECT_EQ("old", read(in_mount("tools/one")));
  EXPECT_EQ("a.txt dir tools ", listed(mountpoint_));
  EXPECT_EQ("1", copies());
  EXPECT_NE(std::string::npos, change("list", session, {}).find("tools  inject:" + file("old") + "  read-only"));
  done({"rollback", session});
  refused_with("already", {"--inject", "tools=" + file("new")});
}

TEST_F(LiveMounts, AnEntryCanGoThoughAFileHasComeToBeOnItsWay) {
  const std::string session = mount();
  inject("add", session, "w/x/y", "old");
  done({"run", "--", "sh", "-c", "echo of the branch > w"});
  done({"update", session});
  inject("replace", session, "w/x/y", "new");
  EXPECT_EQ("new", read(in_mount("w/x/y/one")));
  change("remove", session, {"w/x/y"});
  EXPECT_EQ("of the branch\n", read(in_mount("w")));
}

TEST_F(LiveMounts, TheMountOfASessionIsNoSource) {
  const std::string session = mount({"--opens", "daemon"});
  ASSERT_EQ(0, ::symlink(mountpoint_.c_str(), file("link").c_str()));
  for (const std::string& source : {mountpoint_, in_mount("dir"), file("link"), file("link/dir")}) {
    const std::string entry = "path=self,source=host:" + source;
    const ProcessResult added = escrow({"mounts", "add", session, "--mount", entry});
    EXPECT_NE(0, added.status) << source;
    EXPECT_NE(std::string::npos, added.err.find("it is in the mount of session " + session)) << added.err;
    const ProcessResult run = escrow({"run", "--mount", entry, "--", "true"});
    EXPECT_EQ(125, run.status) << source;
    EXPECT_NE(std::string::npos, run.err.find("it is in the mount of session " + session)) << run.err;
  }
  EXPECT_EQ("a.txt dir ", listed(mountpoint_));
}

TEST_F(LiveMounts, ACommandIsHandedFilesWhileItRuns) {
  std::string session;
  std::thread host([&] {
    EXPECT_TRUE(eventually([&] {
      session = shell("ls '" + repository_ + "/escrow/sessions' | head -n 1");
      return escrow({"mounts", "list", session}).status == 0;
    }));
    inject("add", session, "uploads/report.txt", "old/one");
  });
  const ProcessResult result =
      escrow({"run", "--", "sh", "-ec",
              "n=0; until test -e uploads/report.txt; do n=$((n+1)); test $n -lt 600; sleep 0.05; done; "
              "cat uploads/report.txt > got; ls uploads >> got"});
  host.join();
  EXPECT_EQ(0, result.status) << result.err;
  EXPECT_EQ("oldreport.txt", content("got"));
  EXPECT_EQ("a.txt\ndir/b.txt\ndir/sub/c.txt\ngot", git("ls-tree -r --name-only main"));
}

// A listing that is under way, of names that neither come nor go, has each exactly once.
TEST_F(LiveMounts, AListingGoesOnWhileEntriesComeAndGo) {
  const std::string session = mount();
  for (int at = 0; at < 4; ++at) inject("add", session, "ext/stays" + std::to_string(at), "old");
  for (int round = 0; round < 3; ++round) {
    std::multiset<std::string> names;
    const std::unique_ptr<DIR, int (*)(DIR*)> opened(::opendir(in_mount("ext").c_str()), ::closedir);
    ASSERT_NE(nullptr, opened);
    if (const dirent* first = ::readdir(opened.get())) names.insert(first->d_name);
    inject("add", session, "ext/a" + std::to_string(round), "new");
    if (round > 0) change("remove", session, {"ext/a" + std::to_string(round - 1)});
    while (const dirent* next = ::readdir(opened.get())) names.insert(next->d_name);
    for (int at = 0; at < 4; ++at) EXPECT_EQ(1u, names.count("stays" + std::to_string(at))) << "round " << round;
  }
}

}  // namespace
}  // namespace escrow::test
