// The mount table end to end: `--mount` of host directories and scratch directories beside a real repository.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>

#include "tests/mount/cli_fixture.h"
#include "tests/mount/worker.h"

namespace escrow::test {
namespace {

class MountTableOnTheKernel : public EscrowCommands {
 protected:
  void SetUp() override {
    EscrowCommands::SetUp();
    if (IsSkipped()) return;
    shell(
        "mkdir -p host/sub && printf one > host/one.txt && printf two > host/sub/two.txt && ln -s sub/two.txt host/in",
        {.directory = directory_.path(), .environment = {}, .input = {}});
  }
  std::string host(const std::string& name) const { return file("host") + "/" + name; }
  std::string entry(const std::string& path, const std::string& mode = "read-only") const {
    return "path=" + path + ",source=host:" + file("host") + ",mode=" + mode;
  }
  std::string listed(const std::string& path) const { return shell("ls -A '" + path + "' | tr '\\n' ' '"); }
  bool exists(const std::string& path) const {
    struct stat about {};
    return ::lstat(path.c_str(), &about) == 0;
  }
  // errno of a call that answers less than 0; 0 of one that succeeds.
  static int error_of(const std::function<long()>& call) {
    errno = 0;
    const long result = call();
    const int error = errno;
    if (result >= 0) return 0;
    return error;
  }
  static int error_of_open(const std::string& path, int flags) {
    return error_of([&] {
      const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
      if (fd >= 0) ::close(fd);
      return fd;
    });
  }
};

TEST_F(MountTableOnTheKernel, EntriesAndTheDirectoriesOnTheWayAreListed) {
  mount({"--mount", entry("vendor/lib"), "--mount", entry("dir/tools")});
  EXPECT_EQ("a.txt dir vendor ", listed(mountpoint_));
  EXPECT_EQ("lib ", listed(in_mount("vendor")));
  EXPECT_EQ("b.txt sub tools ", listed(in_mount("dir")));
  EXPECT_EQ("in one.txt sub ", listed(in_mount("vendor/lib")));
  EXPECT_EQ("two", read(in_mount("dir/tools/in"))) << "a link inside of an entry";
  EXPECT_EQ("b\n", read(in_mount("dir/b.txt")));
  const std::string found = shell("cd '" + mountpoint_ + "' && find . -type f | sort | tr '\\n' ' '");
  EXPECT_EQ(
      "./a.txt ./dir/b.txt ./dir/sub/c.txt ./dir/tools/one.txt ./dir/tools/sub/two.txt ./vendor/lib/one.txt "
      "./vendor/lib/sub/two.txt ",
      found);
}

// Each entry holds a directory of the host open, and none of them is mounted over.
TEST_F(MountTableOnTheKernel, ACommandIsInItsSessionHoweverManyEntriesThereAre) {
  for (const int count : {83, 120, 4096}) {
    const std::string made = "made-" + std::to_string(count);
    std::vector<std::string> words = {"run"};
    for (int at = 0; at < count; ++at) words.insert(words.end(), {"--mount", entry("entries/" + std::to_string(at))});
    words.insert(words.end(), {"--", "sh", "-c", "ls -d entries/* | wc -l; echo x > " + made});
    const ProcessResult result = escrow(words);
    EXPECT_EQ(0, result.status) << result.err;
    EXPECT_EQ(std::to_string(count) + "\n", result.out);
    EXPECT_EQ("x", shell("git -C '" + repository_ + "' show main:" + made));
    EXPECT_FALSE(exists(host(made)));
  }
}

TEST_F(MountTableOnTheKernel, EntriesAndTheDirectoriesOnTheWayAreBusy) {
  mount({"--mount", entry("vendor/lib", "read-write"), "--mount", entry("dir/tools", "read-write")});
  const std::string other = in_mount("other");
  ASSERT_EQ(0, ::mkdir(other.c_str(), 0755));
  for (const char* name : {"vendor", "vendor/lib", "dir", "dir/tools"}) {
    const std::string path = in_mount(name);
    EXPECT_EQ(EBUSY, error_of([&] { return ::rmdir(path.c_str()); })) << name;
    EXPECT_EQ(EBUSY, error_of([&] { return ::rename(path.c_str(), in_mount("new").c_str()); })) << name;
    EXPECT_EQ(EBUSY, error_of([&] { return ::rename(other.c_str(), path.c_str()); })) << name;
    EXPECT_EQ(EBUSY, error_of([&] {
                return ::syscall(SYS_renameat2, AT_FDCWD, other.c_str(), AT_FDCWD, path.c_str(), 2u /* exchange */);
              }))
        << name;
    EXPECT_EQ(EEXIST, error_of([&] { return ::mkdir(path.c_str(), 0755); })) << name;
    EXPECT_NE(0, error_of([&] { return ::unlink(path.c_str()); })) << name;
  }
  EXPECT_EQ(EACCES, error_of([&] { return ::mkdir(in_mount("vendor/more").c_str(), 0755); }))
      << "the repository has no such directory";
  EXPECT_EQ("lib ", listed(in_mount("vendor")));
  EXPECT_EQ(0, error_of([&] { return ::mkdir(in_mount("dir/more").c_str(), 0755); }));
}

TEST_F(MountTableOnTheKernel, NothingIsRenamedOrLinkedFromOneEntryIntoAnother) {
  mount({"--mount", entry("ext", "read-write"), "--mount", "path=tmp,source=scratch"});
  write(in_mount("tmp/made"), "made");
  const std::pair<const char*, const char*> pairs[] = {
      {"a.txt", "ext/a"}, {"ext/one.txt", "one"}, {"tmp/made", "ext/made"}, {"ext/one.txt", "tmp/one"}};
  for (const auto& [from, to] : pairs) {
    EXPECT_EQ(EXDEV, error_of([&, f = in_mount(from), t = in_mount(to)] { return ::rename(f.c_str(), t.c_str()); }));
    EXPECT_EQ(EXDEV, error_of([&, f = in_mount(from), t = in_mount(to)] { return ::link(f.c_str(), t.c_str()); }));
  }
  shell("mv '" + in_mount("a.txt") + "' '" + in_mount("ext/a.txt") + "'");
  EXPECT_EQ("a\n", read(host("a.txt"))) << "mv(1) copies";
  EXPECT_FALSE(exists(in_mount("a.txt")));
  EXPECT_EQ(0, error_of([&] { return ::rename(in_mount("ext/a.txt").c_str(), in_mount("ext/sub/b").c_str()); }));
  EXPECT_EQ(0, error_of([&] { return ::link(in_mount("ext/sub/b").c_str(), in_mount("ext/c").c_str()); }));
  EXPECT_EQ("a\n", read(host("c")));
}

TEST_F(MountTableOnTheKernel, EveryChangingCallOnAReadOnlyEntryIsEacces) {
  const std::string before = shell("cd '" + file("host") + "' && find . -printf '%p %s %m %T@ %l\\n' | sort");
  const std::string session = mount({"--mount", entry("ext"), "--xattr", "user"});
  const std::string one = in_mount("ext/one.txt"), sub = in_mount("ext/sub"), fresh = in_mount("ext/new");
  const timespec times[2] = {{1, 0}, {1, 0}};
  const std::map<std::string, std::function<long()>> calls = {
      {"mkdir", [&] { return ::mkdir(fresh.c_str(), 0755); }},
      {"mknod", [&] { return ::mknod(fresh.c_str(), S_IFREG | 0644, 0); }},
      {"mkfifo", [&] { return ::mkfifo(fresh.c_str(), 0644); }},
      {"symlink", [&] { return ::symlink("x", fresh.c_str()); }},
      {"link", [&] { return ::link(one.c_str(), fresh.c_str()); }},
      {"unlink", [&] { return ::unlink(one.c_str()); }},
      {"rmdir", [&] { return ::rmdir(sub.c_str()); }},
      {"rename", [&] { return ::rename(one.c_str(), fresh.c_str()); }},
      {"rename out", [&] { return ::rename(one.c_str(), in_mount("one").c_str()); }},
      {"rename in", [&] { return ::rename(in_mount("a.txt").c_str(), fresh.c_str()); }},
      {"chmod", [&] { return ::chmod(one.c_str(), 0600); }},
      {"chmod of the root", [&] { return ::chmod(in_mount("ext").c_str(), 0700); }},
      {"chown", [&] { return ::lchown(one.c_str(), 1, 1); }},
      {"utimensat", [&] { return ::utimensat(AT_FDCWD, one.c_str(), times, 0); }},
      {"truncate", [&] { return ::truncate(one.c_str(), 0); }},
  };
  for (const auto& [name, call] : calls) EXPECT_EQ(EACCES, error_of(call)) << name;
  for (const int flags : {O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC, O_WRONLY | O_APPEND})
    EXPECT_EQ(EACCES, error_of_open(one, flags)) << flags;
  EXPECT_EQ(EACCES, error_of_open(fresh, O_WRONLY | O_CREAT));
  EXPECT_EQ("python: EACCES", shell("python3 -c \"\nimport os,errno\ntry:\n  os.setxattr('" + one +
                                    "','user.a',b'1')\nexcept OSError as e:\n  print('python:',errno.errorcode[e.errno"
                                    "])\""));
  EXPECT_EQ("one", read(one));
  EXPECT_EQ(before, shell("cd '" + file("host") + "' && find . -printf '%p %s %m %T@ %l\\n' | sort"));
  done({"commit", session});
}

TEST_F(MountTableOnTheKernel, AReadWriteEntryIsWrittenThroughAndOutsideOfTheTransaction) {
  const std::string session = mount({"--mount", entry("ext", "read-write")});
  shell("cd '" + mountpoint_ +
        "' && echo more > ext/more && sync ext/more && rm ext/one.txt && mkdir -p ext/d && "
        "echo mine > mine.txt");
  EXPECT_EQ("more\n", read(host("more"))) << "before anything is decided";
  const std::string shown = done({"status", session});
  EXPECT_NE(shown.find("ext: host:" + file("host") + ", read-write, written through: outside of the transaction"),
            std::string::npos)
      << shown;
  const std::string json = done({"status", session, "--json"});
  EXPECT_NE(json.find("\"outside_transaction\":true"), std::string::npos) << json;
  done({"rollback", session});
  EXPECT_EQ("more\n", read(host("more")));
  EXPECT_FALSE(exists(host("one.txt")));
  EXPECT_TRUE(exists(host("d")));
}

TEST_F(MountTableOnTheKernel, ARunSaysWhatItWroteForGood) {
  const ProcessResult result = escrow({"run", "--result", file("result.json"), "--mount", entry("ext", "read-write"),
                                       "--", "sh", "-c", "echo kept > ext/kept; echo lost > lost; exit 3"});
  EXPECT_EQ(3, result.status);
  EXPECT_NE(result.err.find("outside of the session: what was written below ext is in the host's own directory"),
            std::string::npos)
      << result.err;
  EXPECT_EQ("kept\n", read(host("kept")));
  const std::string json = read(file("result.json"));
  EXPECT_NE(
      json.find("\"mounts\":[{\"mode\":\"read-write\",\"hides\":false,\"outside_transaction\":true,\"path\":\"ext\""),
      std::string::npos)
      << json;
  const ProcessResult read_only = escrow({"run", "--mount", entry("ext"), "--", "true"});
  EXPECT_EQ(read_only.err.find("outside of the session"), std::string::npos) << read_only.err;
}

TEST_F(MountTableOnTheKernel, ACommitHasNothingOfAnEntryAndAllThatItHides) {
  const std::string session = mount({"--mount", entry("dir", "read-write"), "--mount", "path=a.txt,source=scratch"});
  EXPECT_EQ("a.txt dir ", listed(mountpoint_));
  EXPECT_EQ("in one.txt sub ", listed(in_mount("dir")));
  EXPECT_EQ("", listed(in_mount("a.txt"))) << "a directory over a file";
  const std::string shown = done({"status", session});
  EXPECT_NE(shown.find("dir: host:" + file("host") +
                       ", read-write, written through: outside of the transaction, hides "
                       "what the repository has there"),
            std::string::npos)
      << shown;
  write(in_mount("dir/b.txt"), "not the repository's");
  write(in_mount("a.txt/made"), "not the repository's");
  write(in_mount("new.txt"), "new");
  EXPECT_EQ("A\tnew.txt", done({"diff", session, "--name-status"}));
  done({"commit", session});
  EXPECT_EQ("a.txt\ndir/b.txt\ndir/sub/c.txt\nnew.txt", git("ls-tree -r --name-only main"));
  EXPECT_EQ("b", content("dir/b.txt"));
}

TEST_F(MountTableOnTheKernel, AnEntryIsNotCountedAgainstTheLimitsOfTheSession) {
  const ProcessResult result =
      escrow({"run", "--limit-files", "1", "--limit-staged-bytes", "100000", "--mount", "path=tmp,source=scratch", "--",
              "sh", "-c", "for i in 1 2 3 4; do head -c 200000 /dev/zero > tmp/$i || exit 9; done; echo 1 > one"});
  EXPECT_EQ(0, result.status) << result.err;
  EXPECT_EQ("1", content("one"));
}

TEST_F(MountTableOnTheKernel, PoliciesJudgeEntriesByTheirPaths) {
  write(file("policy.json"), R"({"default": "allow", "rules": [
      {"effect": "deny", "actions": ["read", "list", "write", "create", "delete", "rename", "metadata"],
       "paths": ["ext/sub/**"]},
      {"effect": "deny", "actions": ["create"], "paths": ["ext/*.o"]}]})");
  mount({"--mount", entry("ext", "read-write"), "--policy", file("policy.json")});
  EXPECT_EQ("one", read(in_mount("ext/one.txt")));
  EXPECT_EQ(EACCES, error_of_open(in_mount("ext/sub/two.txt"), O_RDONLY));
  EXPECT_EQ(EACCES, error_of_open(in_mount("ext/in"), O_RDONLY)) << "by a link";
  EXPECT_EQ(EACCES, error_of_open(in_mount("ext/x.o"), O_WRONLY | O_CREAT));
  EXPECT_EQ(EACCES, error_of([&] { return ::rename(in_mount("ext/sub").c_str(), in_mount("ext/open").c_str()); }));
  EXPECT_EQ(0, error_of_open(in_mount("ext/x.c"), O_WRONLY | O_CREAT));
}

TEST_F(MountTableOnTheKernel, LinksThatLeadOutOfTheMountCannotBeReadWhereTheyAreContained) {
  shell("cd '" + file("host") + "' && printf secret > ../secret && ln -s '" + file("secret") +
        "' absolute && ln -s ../../secret up && ln -s ../a.txt beside");
  mount({"--mount", entry("ext"), "--symlinks", "contained"});
  EXPECT_EQ(EACCES, error_of_open(in_mount("ext/absolute"), O_RDONLY));
  EXPECT_EQ(EACCES, error_of_open(in_mount("ext/up"), O_RDONLY));
  EXPECT_EQ("a\n", read(in_mount("ext/beside"))) << "virtual paths: it stays in the mount";
}

TEST_F(MountTableOnTheKernel, AConfinedCommandFindsNoPathOfTheHost) {
  const ProcessResult result = escrow(
      {"run", "--confine", "--mount", entry("ext", "read-write"), "--", "sh", "-c",
       "cat ext/one.txt && cd ext/sub && pwd && readlink -f two.txt && cat /proc/self/mountinfo /proc/self/maps; "
       "readlink /proc/self/cwd /proc/self/fd/*; cat nowhere; true"});
  ASSERT_EQ(0, result.status) << result.err;
  EXPECT_NE(result.out.find("/sandbox/ext/sub\n/sandbox/ext/sub/two.txt\n"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find(file("host")), std::string::npos) << result.out;
}

// ---- what is injected ----

TEST_F(MountTableOnTheKernel, WhatIsInjectedIsAsItWasWhenTheSessionWasMounted) {
  shell("cd '" + file("host") +
        "' && ln one.txt hard && chmod 640 one.txt && touch -d '2001-02-03 04:05:06.789' sub "
        "one.txt && mkfifo fifo && chmod 555 sub");
  const std::string before = shell("cd '" + file("host") + "' && stat -c '%n %a %s %y %h' one.txt sub/two.txt hard");
  mount({"--inject", "tools=" + file("host"), "--inject", "dir/b.txt=" + host("one.txt")});
  write(host("one.txt"), "changed");
  ASSERT_EQ(0, ::unlink(host("sub/two.txt").c_str()));
  EXPECT_EQ("one", read(in_mount("tools/one.txt")));
  EXPECT_EQ("one", read(in_mount("dir/b.txt"))) << "a file over a file";
  EXPECT_EQ("two", read(in_mount("tools/in")));
  EXPECT_EQ("hard in one.txt sub ", listed(in_mount("tools")));
  EXPECT_EQ(before, shell("cd '" + in_mount("tools") + "' && stat -c '%n %a %s %y %h' one.txt sub/two.txt hard"));
  for (const char* name : {"tools/one.txt", "dir/b.txt"}) EXPECT_EQ(EACCES, error_of_open(in_mount(name), O_WRONLY));
  EXPECT_EQ(EACCES, error_of_open(in_mount("tools/new"), O_WRONLY | O_CREAT));
  EXPECT_EQ(EBUSY, error_of([&] { return ::unlink(in_mount("dir/b.txt").c_str()); }));
  EXPECT_EQ(EBUSY, error_of([&] { return ::rename(in_mount("a.txt").c_str(), in_mount("dir/b.txt").c_str()); }));
}

TEST_F(MountTableOnTheKernel, AnOverlayCanBeWrittenToAndGoesWithTheSession) {
  const ProcessResult result =
      escrow({"run", "--inject", "tools=" + file("host") + ",mode=overlay", "--mount",
              "path=ext,source=host:" + file("host") + ",mode=overlay", "--inject",
              "one=" + host("one.txt") + ",mode=overlay", "--", "sh", "-ec",
              "echo x > tools/one.txt; rm -r tools/sub; mkdir tools/new; echo y > ext/one.txt; echo z > one; "
              "cat tools/one.txt ext/one.txt one > all"});
  ASSERT_EQ(0, result.status) << result.err;
  EXPECT_EQ("x\ny\nz", content("all"));
  EXPECT_EQ("a.txt\nall\ndir/b.txt\ndir/sub/c.txt", git("ls-tree -r --name-only main"));
  EXPECT_EQ("one", read(host("one.txt")));
  EXPECT_EQ("two", read(host("sub/two.txt")));
  EXPECT_EQ(result.err.find("outside of the session"), std::string::npos) << result.err;
}

TEST_F(MountTableOnTheKernel, AModuleIsImportedFromWhatWasInjected) {
  shell("mkdir lib && echo 'def told(): return \"from the library\"' > lib/library.py",
        {.directory = directory_.path(), .environment = {}, .input = {}});
  const ProcessResult result = escrow({"run", "--inject", "libs=" + file("lib"), "--env", "PYTHONPATH=libs", "--",
                                       "python3", "-c", "import library; open('told', 'w').write(library.told())"});
  ASSERT_EQ(0, result.status) << result.err;
  EXPECT_EQ("from the library", content("told"));
}

TEST_F(MountTableOnTheKernel, WhatIsWrongWithAnInjectionIsSaidInOneSentence) {
  const std::pair<const char*, std::string> wrong[] = {
      {"not of the form PATH=DIR", "x"},
      {"not of the form PATH=DIR", "=" + file("host")},
      {"the root for its path", "/=" + file("host")},
      {"No such file or directory", "x=" + file("nowhere")},
      {"neither a directory nor a file", "x=/dev/null"},
      {"the repository '", "x=" + repository_ + "/HEAD"},
  };
  for (const auto& [words, entry] : wrong) {
    refused(2, words, {"mount", mountpoint_, "--inject", entry});
    EXPECT_EQ(125, escrow({"run", "--inject", entry, "--", "true"}).status) << entry;
  }
  refused(2, "mode=read-write of what is injected",
          {"mount", mountpoint_, "--mount", "path=x,source=inject:" + file("host") + ",mode=read-write"});
}

// ---- in the other modes of opens and data, and without io_uring ----

class MountTableInMode : public MountTableOnTheKernel, public testing::WithParamInterface<const char*> {
 protected:
  std::vector<std::string> with(std::vector<std::string> options) const {
    const std::string mode = GetParam();
    if (mode == "plain") {
      options.insert(options.end(), {"--io-uring", "off"});
    } else if (mode == "daemon") {
      options.insert(options.end(), {"--opens", "daemon"});
    } else if (mode != "auto") {
      options.insert(options.end(), {"--io", mode});
    }
    return options;
  }
  bool is_possible() const {
    if (std::string(GetParam()) != "passthrough") return true;
    std::vector<std::string> probe = with({"run"});
    probe.insert(probe.end(), {"--", "true"});
    return escrow(probe).status == 0;
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, MountTableInMode,
                         testing::Values("auto", "plain", "daemon", "passthrough", "writeback"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_P(MountTableInMode, WhatOthersChangeIsSeenAtTheNextOpenOrStat) {
  if (!is_possible()) GTEST_SKIP() << "this kernel has no passthrough";
  if (std::string(GetParam()) == "writeback") {
    refused(2, "would not see what others write", {"mount", mountpoint_, "--io", "writeback", "--mount", entry("ext")});
    return;
  }
  mount(with({"--mount", entry("ext")}));
  for (int turn = 0; turn < 20; ++turn) {
    const std::string text = "turn " + std::to_string(10 + turn);  // of one size: nothing but the bytes tells
    write(host("one.txt"), text);
    EXPECT_EQ(text, read(in_mount("ext/one.txt")));
    const std::string name = "made" + std::to_string(turn);
    EXPECT_FALSE(exists(in_mount("ext/" + name)));
    write(host(name), std::string(static_cast<std::size_t>(turn), 'x'));
    struct stat about {};
    ASSERT_EQ(0, ::stat(in_mount("ext/" + name).c_str(), &about)) << name;
    EXPECT_EQ(turn, about.st_size);
    EXPECT_NE(listed(in_mount("ext")).find(name + " "), std::string::npos);
    ASSERT_EQ(0, ::rename(host(name).c_str(), host("sub/" + name).c_str()));
    EXPECT_FALSE(exists(in_mount("ext/" + name)));
    EXPECT_TRUE(exists(in_mount("ext/sub/" + name)));
    EXPECT_EQ(listed(in_mount("ext")).find(name + " "), std::string::npos);
    ASSERT_EQ(0, ::chmod(host("sub/" + name).c_str(), 0600 + static_cast<mode_t>(turn % 8)));
    ASSERT_EQ(0, ::stat(in_mount("ext/sub/" + name).c_str(), &about));
    EXPECT_EQ(0600u + static_cast<mode_t>(turn % 8), about.st_mode & 07777);
    // Another file in its place.
    write(host("next"), "next" + std::to_string(turn));
    ASSERT_EQ(0, ::rename(host("next").c_str(), host("one.txt").c_str()));
    EXPECT_EQ("next" + std::to_string(turn), read(in_mount("ext/one.txt")));
  }
}

TEST_P(MountTableInMode, AnOpenFileOutlivesItsName) {
  if (!is_possible()) GTEST_SKIP() << "this kernel has no passthrough";
  const bool is_writeback = std::string(GetParam()) == "writeback";
  mount(with({"--mount", is_writeback ? "path=ext,source=scratch" : entry("ext", "read-write")}));
  const int fd = ::open(in_mount("ext/held").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0444);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(6, ::pwrite(fd, "before", 6, 0));
  ASSERT_EQ(0, ::unlink(in_mount("ext/held").c_str()));
  ASSERT_EQ(6, ::pwrite(fd, " after", 6, 6));
  ASSERT_EQ(0, ::fsync(fd));
  char bytes[16] = {};
  EXPECT_EQ(12, ::pread(fd, bytes, sizeof bytes, 0));
  EXPECT_STREQ("before after", bytes);
  struct stat about {};
  EXPECT_EQ(0, ::fstat(fd, &about));
  EXPECT_EQ(0u, about.st_nlink);
  EXPECT_EQ(12, about.st_size);
  ::close(fd);
  EXPECT_FALSE(exists(in_mount("ext/held")));
}

TEST_P(MountTableInMode, ABuildInAScratchDirectoryLeavesNothing) {
  if (!is_possible()) GTEST_SKIP() << "this kernel has no passthrough";
  std::vector<std::string> options = with({"run", "--mount", "path=build/out,source=scratch"});
  options.insert(options.end(),
                 {"--", "sh", "-ec",
                  "cat > Makefile <<'M'\nall: build/out/prog\nbuild/out/%.o: %.src\n\tcp $< $@\n"
                  "build/out/prog: build/out/one.o build/out/two.o\n\tcat $^ > $@ && ln -f $@ build/out/link\nM\n"
                  "echo 1 > one.src; echo 2 > two.src\n"
                  "make -s && cmp build/out/prog build/out/link && test \"$(make)\" = \"make: Nothing to be done for "
                  "'all'.\" && cp build/out/prog result\n"
                  "mkdir -p build/out/deep/er && echo x > build/out/deep/er/file && chmod 0 build/out/deep"});
  const ProcessResult result = escrow(options);
  ASSERT_EQ(0, result.status) << result.err << result.out;
  EXPECT_EQ("1\n2", content("result"));
  EXPECT_EQ("Makefile\na.txt\ndir/b.txt\ndir/sub/c.txt\none.src\nresult\ntwo.src", git("ls-tree -r --name-only main"));
  EXPECT_EQ("", shell("find '" + repository_ + "/escrow/sessions' -mindepth 1"));
}

// ---- what tries to get out ----

// Somebody on the host exchanges a directory and a link to another one without a pause, while the session reads,
// writes and lists below that name.
TEST_F(MountTableOnTheKernel, NoRaceOfLinksOnTheHostLeadsOut) {
  shell("cd '" + file("host") +
        "' && mkdir -p ../outside/deep d/deep && printf secret > ../outside/deep/file && "
        "printf inside > d/deep/file && ln -s '" +
        file("outside") + "' link");
  const std::string outside_before = shell("cd '" + file("outside") + "' && find . -printf '%p %s %T@\\n' | sort");
  mount({"--mount", entry("ext", "read-write")});
  const Worker attacker([&](const auto& begun) -> int {
    for (std::uint64_t tries = 0;; ++tries) {
      ::syscall(SYS_renameat2, AT_FDCWD, host("d").c_str(), AT_FDCWD, host("link").c_str(), 2u /* exchange */);
      if (tries == 10) begun();
    }
  });
  ASSERT_TRUE(attacker.has_begun());
  constexpr int kTries = 4000;
  int inside = 0, leaks = 0;
  for (int tries = 0; tries < kTries; ++tries) {
    // O_NOFOLLOW of the whole path is the kernel's: a link that it is shown, it would follow itself.
    const int d = ::open(in_mount("ext/d").c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (d < 0) continue;
    char bytes[16] = {};
    const int fd = ::openat(d, "deep/file", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && ::read(fd, bytes, sizeof bytes - 1) > 0) {
      inside += std::strcmp(bytes, "inside") == 0;
      leaks += std::strcmp(bytes, "inside") != 0;
    }
    if (fd >= 0) ::close(fd);
    const std::string made = "deep/made" + std::to_string(tries % 7);
    const int written = ::openat(d, made.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (written >= 0) ::close(written);
    ::mkdirat(d, "deep/dir", 0755);
    ::unlinkat(d, "deep/dir", AT_REMOVEDIR);
    ::close(d);
  }
  EXPECT_EQ(0, leaks);
  EXPECT_GT(inside, 0) << "of " << kTries << " tries none met the directory";
  EXPECT_EQ(outside_before, shell("cd '" + file("outside") + "' && find . -printf '%p %s %T@\\n' | sort"));
}

TEST_F(MountTableOnTheKernel, WhatIsMountedBelowAHostDirectoryIsNotInIt) {
  shell("cd '" + file("host") + "' && mkdir -p other && printf under > other/under");
  ASSERT_EQ(0, ::mount("none", host("other").c_str(), "tmpfs", 0, nullptr));
  write(host("other/above"), "above");
  mount({"--mount", entry("ext")});
  EXPECT_FALSE(exists(in_mount("ext/other/above")));
  EXPECT_EQ("in one.txt sub ", listed(in_mount("ext")));
  ::umount2(host("other").c_str(), MNT_DETACH);
  EXPECT_EQ("under", read(in_mount("ext/other/under")));
}

TEST_F(MountTableOnTheKernel, DevicesCannotBeMadeInAnEntry) {
  mount({"--mount", entry("ext", "read-write")});
  EXPECT_EQ(EPERM, error_of([&] { return ::mknod(in_mount("ext/null").c_str(), S_IFCHR | 0666, makedev(1, 3)); }));
  EXPECT_FALSE(exists(host("null")));
}

TEST_F(MountTableOnTheKernel, ASessionThatIsMountedAgainHasItsEntries) {
  const std::string session = mount({"--mount", entry("ext"), "--mount", "path=tmp,source=scratch"});
  write(in_mount("tmp/kept"), "kept");
  unmount_outside(session);
  mount({"--session", session});
  EXPECT_EQ("a.txt dir ext tmp ", listed(mountpoint_));
  EXPECT_EQ("kept", read(in_mount("tmp/kept"))) << "a scratch directory is the session's";
  unmount_outside(session);
  mount({"--session", session, "--mount", "path=more,source=scratch", "--mount", entry("ext/", "read-write")});
  EXPECT_EQ("a.txt dir ext more tmp ", listed(mountpoint_)) << "one more, and one in the place of another";
  write(in_mount("ext/new"), "new");
  EXPECT_EQ("new", read(host("new")));
  unmount_outside(session);
  refused(2, "inside of it, 'tmp/in'", {"mount", mountpoint_, "--session", session, "--mount",
                                        "path=tmp/in,source=scratch"});
  mount({"--session", session});
  EXPECT_EQ("a.txt dir ext more tmp ", listed(mountpoint_)) << "what was refused changed nothing";
}

TEST_F(MountTableOnTheKernel, WhatIsWrongWithAnEntryIsSaidInOneSentence) {
  const std::pair<const char*, std::string> wrong[] = {
      {"has no source", "path=x"},
      {"has no path", "source=scratch"},
      {"none of host:DIR, inject:DIR, rev:BRANCH, cache:NAME and scratch", "path=x,source=/tmp"},
      {"the word 'what=1', which is unknown", "path=x,source=scratch,what=1"},
      {"says its path twice", "path=x,target=y,source=scratch"},
      {"has path without a value", "path=,source=scratch"},
      {"has mode=overwrite; it is read-only, read-write or overlay", "path=x,source=scratch,mode=overwrite"},
      {"the root for its path", "path=/,source=scratch"},
      {"cannot be opened: No such file or directory", "path=x,source=host:" + file("nowhere")},
      {"cannot be opened: Not a directory", "path=x,source=host:" + host("one.txt")},
      {"the repository '", "path=x,source=host:" + directory_.path()},
      {"the repository '", "path=x,source=host:" + repository_ + "/escrow"},
      {"a quotation mark that nothing closes", "path=x,\"source=scratch"},
      {"true or false", "path=x,source=scratch,ro=maybe"},
      {"type=volume", "path=x,type=volume,source=name"},
  };
  for (const auto& [words, entry] : wrong) {
    refused(2, words, {"mount", mountpoint_, "--mount", entry});
    const ProcessResult result = escrow({"run", "--mount", entry, "--", "true"});
    EXPECT_EQ(125, result.status) << entry << result.err;
  }
  refused(2, "has 'x' twice",
          {"mount", mountpoint_, "--mount", "path=x,source=scratch", "--mount", "path=x/,source=scratch"});
  refused(2, "inside of it, 'x/y'",
          {"mount", mountpoint_, "--mount", "path=x/y,source=scratch", "--mount", "path=x,source=scratch"});
  refused(2, "--opens none cannot be had with --mount",
          {"mount", mountpoint_, "--opens", "none", "--mount", entry("x")});
  EXPECT_EQ("1", shell("escrow_sessions='" + done({"sessions", "--json"}) +
                       "'; echo \"$escrow_sessions\" | grep -o '\"session\":' | wc -l"))
      << "only the import's";
}

TEST_F(MountTableOnTheKernel, TheWordsOfDockerAreUnderstood) {
  mount({"--mount", "type=bind,src=" + file("host") + ",target=/bound,readonly", "--mount",
         "type=bind,\"source=" + file("host") + "\",dst=writable,rw", "--mount", "type=tmpfs,destination=/tmp"});
  EXPECT_EQ("one", read(in_mount("bound/one.txt")));
  EXPECT_EQ(EACCES, error_of_open(in_mount("bound/one.txt"), O_WRONLY));
  EXPECT_EQ(0, error_of_open(in_mount("writable/new"), O_WRONLY | O_CREAT));
  EXPECT_EQ(0, error_of_open(in_mount("tmp/new"), O_WRONLY | O_CREAT));
}

}  // namespace
}  // namespace escrow::test
