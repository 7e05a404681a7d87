// `--cache` end to end: builds that keep their object files, whatever becomes of a session.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/mount/run_fixture.h"

namespace escrow::test {
namespace {

class CacheOnTheKernel : public EscrowRun {
 protected:
  void done(const std::vector<std::string>& options, const std::string& script) {
    const ProcessResult result = run(options, script);
    EXPECT_EQ(0, result.status) << script << "\n" << result.err;
  }
  // What a session sees of the cache `build` at its path.
  std::string seen(const std::string& path) {
    const ProcessResult result = run({"--cache", "build"}, "cat build/" + path + " > $OUT/seen 2> /dev/null; true");
    EXPECT_EQ(0, result.status) << result.err;
    return read("seen");
  }
  std::string listed() { return escrow({"cache", "list"}).out; }
  std::string mounted(const std::vector<std::string>& options) {
    std::vector<std::string> line = {"mount", file("mnt")};
    line.insert(line.end(), options.begin(), options.end());
    shell("mkdir -p '" + file("mnt") + "'");
    const ProcessResult result = escrow(line);
    EXPECT_EQ(0, result.status) << result.err;
    return result.out.substr(0, 16);
  }
};

TEST_F(CacheOnTheKernel, ASecondBuildCompilesOnlyWhatWasChanged) {
  done({}, R"(mkdir src
    printf 'int one(void);\nint main(void) { return one(); }\n' > src/main.c
    printf 'int one(void) { return 0; }\n' > src/one.c
    printf 'all: build/program\nbuild/%%.o: src/%%.c\n\tcc -c -o $@ $<\n' > Makefile
    printf 'build/program: build/main.o build/one.o\n\tcc -o $@ $^\n' >> Makefile)");
  done({"--cache", "build"}, "make > $OUT/first && build/program");
  EXPECT_NE(std::string::npos, read("first").find("-o build/main.o"));
  EXPECT_FALSE(is_in_head("build"));
  const std::string before = head();
  done({"--cache", "build"}, "make > $OUT/second && build/program");
  EXPECT_NE(std::string::npos, read("second").find("Nothing to be done")) << read("second");
  EXPECT_EQ(before, head());
  done({"--cache", "build"}, "printf 'int one(void) { return 0 * 2; }\\n' > src/one.c; make > $OUT/third");
  EXPECT_EQ(std::string::npos, read("third").find("-o build/main.o")) << "one file was changed";
  EXPECT_NE(std::string::npos, read("third").find("-o build/one.o"));
}

TEST_F(CacheOnTheKernel, ARollbackAKillAndAConflictDropWhatTheSessionMade) {
  done({"--cache", "build"}, "echo kept > build/file");
  EXPECT_EQ(3, run({"--cache", "build"}, "echo failed > build/file; exit 3").status);
  EXPECT_EQ("kept\n", seen("file"));
  {
    BackgroundRun running(
        run_command_line({"--cache", "build"}, "echo killed > build/file; touch '" + file("ready") + "'; sleep 600"),
        file("err"));
    ASSERT_TRUE(eventually([&] { return has("ready"); }));
    ::kill(running.pid(), SIGKILL);
    running.wait();
  }
  EXPECT_EQ("kept\n", seen("file"));
  const ProcessResult other =
      run({"--cache", "build"}, "echo conflict > build/file; echo 1 > a.txt; '" + std::string(ESCROW_BINARY) +
                                    "' --repo '" + repository_ + "' run -- sh -c 'echo 2 > a.txt'");
  EXPECT_EQ(122, other.status) << other.err;
  EXPECT_EQ("kept\n", seen("file"));
}

TEST_F(CacheOnTheKernel, ASessionByHandKeepsItsChangesUntilItIsCommittedFromAnywhere) {
  done({"--cache", "build"}, "echo one > build/file");
  const std::string id = mounted({"--cache", "build"});
  shell("echo two > '" + file("mnt/build/file") + "'");
  EXPECT_EQ("one\n", seen("file"));
  EXPECT_NE(std::string::npos, escrow({"status", id}).out.find("build: cache:build, overlay"));
  EXPECT_EQ(0, escrow({"unmount", id}).status);
  ASSERT_EQ(0, escrow({"mount", file("mnt"), "--session", id, "--cache", "build"}).status);
  EXPECT_EQ("two\n", read("mnt/build/file"));
  EXPECT_EQ(0, escrow({"unmount", id}).status);
  EXPECT_EQ(0, escrow({"commit", id}).status);
  EXPECT_EQ("two\n", seen("file"));
  const std::string live = mounted({"--cache", "build"});
  shell("echo three > '" + file("mnt/build/file") + "'");
  EXPECT_EQ(0, escrow({"commit", live}).status);
  EXPECT_EQ("three\n", seen("file"));
}

TEST_F(CacheOnTheKernel, AResultThatWaitsPublishesWhenItIsApproved) {
  const ProcessResult waits =
      run({"--cache", "build", "--require-approval"}, "echo new > build/file; echo x > new.txt");
  ASSERT_EQ(123, waits.status) << waits.err;
  EXPECT_EQ("", seen("file"));
  const std::string id = shell("ls '" + repository_ + "/escrow/sessions'");
  const std::string result = git("rev-parse refs/sessions/" + id);
  const ProcessResult approved = escrow({"approve", id, "--result", result});
  EXPECT_EQ(0, approved.status) << approved.err;
  EXPECT_EQ("new\n", seen("file"));
}

TEST_F(CacheOnTheKernel, ThePackagesOfAProgramAreKeptAsTheyWereInstalled) {
  const std::string snapshot =
      "cd node_modules && find . -printf '%p %y %m %n %l %T@\\n' | sed 's/^\\(.* d [0-9]*\\) [0-9]*/\\1/' | sort";
  done({"--cache", "node_modules=npm"}, R"(cd node_modules && mkdir -p .bin a/lib b && cd a
    echo 'module.exports = 1' > lib/index.js && chmod 755 lib/index.js && ln lib/index.js ../b/copy.js
    ln -s ../a/lib/index.js ../.bin/a && touch -d '2001-02-03 04:05:06.789012345' lib/index.js lib . ../b
    touch -h -d '2001-02-03 04:05:06.5' ../.bin/a && chmod 555 lib && cd ../.. && )" +
                                            std::string("(") + snapshot + ") > $OUT/before");
  done({"--cache", "node_modules=npm"}, snapshot + " > $OUT/after");
  EXPECT_EQ(read("before"), read("after"));
  EXPECT_NE(std::string::npos, read("after").find("index.js f 755 2")) << read("after");
  done({"--cache", "node_modules=npm"}, "echo 2 >> node_modules/b/copy.js");
  done({"--cache", "other/place=npm"},
       "cat other/place/a/lib/index.js > $OUT/linked; stat -c %h other/place/b/copy.js "
       ">> $OUT/linked");
  EXPECT_EQ("module.exports = 1\n2\n2\n", read("linked"));
}

TEST_F(CacheOnTheKernel, CachesAreListedDroppedVerifiedAndCollected) {
  done({"--cache", "build", "--cache", "deep/er=other name"}, "echo 1 > build/f; echo 2 > deep/er/f");
  EXPECT_NE(std::string::npos, listed().find("other name")) << listed();
  EXPECT_NE(std::string::npos, escrow({"cache", "list", "--json"}).out.find("\"name\":\"build\""));
  EXPECT_EQ(0, escrow({"verify"}).status);
  EXPECT_EQ(0, escrow({"gc"}).status);
  EXPECT_EQ("1\n", seen("f"));
  EXPECT_EQ(0, escrow({"cache", "drop", "other name"}).status);
  EXPECT_NE(0, escrow({"cache", "drop", "other name"}).status);
  EXPECT_EQ(std::string::npos, listed().find("other name"));
  shell("rm -rf '" + repository_ + "'/escrow/caches/build/*/tree");
  EXPECT_NE(0, escrow({"verify"}).status);
  EXPECT_EQ(0, escrow({"gc"}).status);
  EXPECT_EQ(0, escrow({"verify"}).status);
  git("config escrow.cacheLimit 100k");
  const ProcessResult large = run({"--cache", "build"}, "head -c 300000 /dev/zero > build/large; echo x > new.txt");
  EXPECT_EQ(0, large.status);
  EXPECT_NE(std::string::npos, large.err.find("the cache 'build' was not published")) << large.err;
  EXPECT_TRUE(is_in_head("new.txt")) << "the commit stands";
  EXPECT_EQ("", seen("large"));
}

// A .git that a session has left in a cache.
class GitInACache : public CacheOnTheKernel {
 protected:
  void SetUp() override {
    CacheOnTheKernel::SetUp();
    std::filesystem::create_directory(file("mnt"));
  }
  void TearDown() override {
    for (const std::string& session : sessions_) escrow({"rollback", session, "--discard-forks"});
  }
  // What Escrow says.
  std::string mount(std::vector<std::string> options) {
    options.insert(options.begin(), {"mount", file("mnt")});
    const ProcessResult result = escrow(options);
    EXPECT_EQ(0, result.status) << result.err;
    id_ = result.out.substr(0, 16);
    sessions_.insert(id_);
    return result.err;
  }
  void unmount() { EXPECT_EQ(0, escrow({"unmount", id_}).status); }
  bool is_shown(const std::string& path) const { return std::filesystem::exists(file("mnt/" + path)); }
  // Whether git, by the person who has mounted the session, runs the program that the .git names.
  bool runs_a_program(const std::string& path) {
    std::filesystem::remove(file("marker"));
    run_process({"/bin/sh", "-c", "cd '" + file("mnt/" + path) + "' && GIT_CEILING_DIRECTORIES='" + file("mnt/build") +
                                      "' git status"});
    return has("marker");
  }
  std::string hostile(const std::string& path) const {
    return "mkdir -p " + path + "/objects " + path + "/refs; echo 'ref: refs/heads/main' > " + path +
           "/HEAD; printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \"id > " + file("marker") +
           " #\"\\n' > " + path + "/config";
  }
  void confined(const std::string& script) { done({"--confine", "--cache", "build"}, script); }
  void plain(const std::string& script) { done({"--cache", "build"}, script); }

  static constexpr const char* kSentence = "hidden: each .git in the cache 'build' of session ";
  std::string id_;
  std::set<std::string> sessions_;
};

TEST_F(GitInACache, AConfinedCommandsGitIsHiddenFromMountsAndRuns) {
  confined(hostile("build/sub/.git"));
  EXPECT_NE(mount({"--cache", "build"}).find(kSentence), std::string::npos);
  EXPECT_FALSE(is_shown("build/sub/.git"));
  EXPECT_TRUE(std::filesystem::is_empty(file("mnt/build/sub")));
  EXPECT_FALSE(runs_a_program("build/sub"));
  const std::string git = file("mnt/build/sub/.git"), other = file("mnt/build/other");
  EXPECT_TRUE(::mkdir(git.c_str(), 0755) == -1 && errno == EEXIST);
  EXPECT_TRUE(::rename(git.c_str(), other.c_str()) == -1 && errno == ENOENT);
  std::filesystem::create_directory(other);
  EXPECT_TRUE(::rename(other.c_str(), git.c_str()) == -1 && errno == EEXIST);
  EXPECT_TRUE(::rmdir(file("mnt/build/sub").c_str()) == -1 && errno == ENOTEMPTY);
  unmount();
  EXPECT_NE(mount({"--session", id_}).find(kSentence), std::string::npos) << "it was mounted again";
  EXPECT_FALSE(is_shown("build/sub/.git"));
  unmount();
  const ProcessResult said = run({"--cache", "build"}, "test ! -e build/sub/.git && test -e build/sub");
  EXPECT_EQ(0, said.status) << said.err;
  EXPECT_NE(said.err.find(kSentence), std::string::npos) << said.err;
  confined("test -e build/sub/.git/config");
}

TEST_F(GitInACache, ShowGitShowsTheNamedOneInThatMountAlone) {
  confined(hostile("build/sub/.git") + "; mkdir -p build/else/.git");
  mount({"--cache", "build"});
  unmount();
  mount({"--session", id_, "--show-git", "build/sub/.git"});
  EXPECT_TRUE(is_shown("build/sub/.git/config"));
  EXPECT_FALSE(is_shown("build/else/.git"));
  EXPECT_TRUE(runs_a_program("build/sub")) << "or the test shows nothing";
  unmount();
  mount({"--session", id_});
  EXPECT_FALSE(is_shown("build/sub/.git"));
}

TEST_F(GitInACache, TheUsersOwnGitIsShownInTheNextRunAndMount) {
  plain("git init -q build/_deps/x; git init -q build/_deps/y; mv build/_deps/y/.git build/_deps/x/.git/modules; "
        "echo 'gitdir: ../x/.git/modules' > build/_deps/y/.git");
  plain("test -e build/_deps/x/.git/HEAD && git -C build/_deps/y status && echo more > build/more");
  EXPECT_EQ(mount({"--cache", "build"}), "");
  EXPECT_TRUE(is_shown("build/_deps/x/.git/HEAD"));
  std::filesystem::create_directories(file("mnt/build/new/.git"));
  unmount();
  EXPECT_EQ(mount({"--session", id_}), "");
  EXPECT_TRUE(is_shown("build/_deps/x/.git/HEAD") && is_shown("build/_deps/y/.git") && is_shown("build/new/.git"));
}

TEST_F(GitInACache, IsHiddenOnceTwoHandsHaveWrittenUntilTheCacheHasNone) {
  plain("mkdir build/file");
  confined("touch build/file/of-the-command");
  plain("mkdir -p build/own/.git");
  plain("test -e build/own/.git");  // nobody had left a .git
  confined("test -e build/own/.git && touch build/own/changed");
  plain("test ! -e build/own/.git && test -e build/own/changed");
  confined("test -e build/own/.git");
  plain("touch build/own/changed-again");
  EXPECT_NE(mount({"--cache", "build"}).find(kSentence), std::string::npos);
  EXPECT_FALSE(is_shown("build/own/.git"));
  unmount();
  confined("rm -r build/own");
  plain("mkdir -p build/new/.git");
  EXPECT_EQ(mount({"--cache", "build"}), "");
  EXPECT_TRUE(is_shown("build/new/.git"));
}

TEST_F(GitInACache, WithoutANoteOfHandsEachGitIsHidden) {
  plain("mkdir -p build/old/.git");
  shell("sed -i '/^hands/d' '" + repository_ + "'/escrow/caches/build/*/about");
  EXPECT_NE(mount({"--cache", "build"}).find(kSentence), std::string::npos);
  EXPECT_FALSE(is_shown("build/old/.git"));
  EXPECT_TRUE(std::filesystem::create_directory(file("mnt/build/.git")) && is_shown("build/.git"));
  EXPECT_EQ(0, escrow({"commit", id_}).status);
  plain("test ! -e build/old/.git && test ! -e build/.git");
}

TEST_F(GitInACache, TheGitOfOthersIsHiddenAfterARestoreAndInAFork) {
  mount({"--cache", "build"});
  ASSERT_EQ(0, escrow({"savepoint", "create", id_, "empty"}).status);
  std::filesystem::create_directories(file("mnt/build/own/.git"));
  confined("mkdir -p build/sub/.git");
  EXPECT_TRUE(is_shown("build/own/.git"));
  ASSERT_EQ(0, escrow({"savepoint", "restore", id_, "empty"}).status);
  EXPECT_TRUE(is_shown("build/sub"));
  EXPECT_FALSE(is_shown("build/sub/.git"));
  unmount();
  const ProcessResult fork = escrow({"fork", id_});
  ASSERT_EQ(0, fork.status) << fork.err;
  mount({"--session", fork.out.substr(0, 16)});
  EXPECT_TRUE(is_shown("build/sub"));
  EXPECT_FALSE(is_shown("build/sub/.git"));
}

// `npm ci`, a savepoint, a command that wrecks node_modules, and the way back.
class RestoredCache : public CacheOnTheKernel, public testing::WithParamInterface<std::vector<std::string>> {
 protected:
  void TearDown() override {
    if (!session_.empty()) escrow({"rollback", session_});
  }
  // A session over a cache with `file` and `deep/er`, which it has changed before and after the savepoint `good`.
  void begin(std::vector<std::string> more = {}) {
    done({"--cache", "build"}, "mkdir build/deep; echo kept > build/file; echo kept > build/deep/er");
    std::vector<std::string> options = GetParam();
    options.insert(options.end(), cache_.begin(), cache_.end());
    options.insert(options.end(), more.begin(), more.end());
    session_ = mounted(options);
    shell("echo before > '" + file("mnt/build/before") + "'; echo good > '" + file("mnt/a.txt") + "'");
    ASSERT_EQ(0, escrow({"savepoint", "create", session_, "good"}).status);
    make_wreck();
  }
  void make_wreck() {
    shell("cd '" + file("mnt") + "' && rm -rf build/* && echo wreck | tee build/wreck > a.txt");
  }
  std::string restored(const std::string& savepoint) {
    const ProcessResult result = escrow({"savepoint", "restore", session_, savepoint});
    EXPECT_EQ(0, result.status) << result.err;
    return result.err;
  }
  std::string in_cache() { return shell("cd '" + file("mnt/build") + "' && find . -type f | sort | tr '\n' ' '"); }
  // All that the next session sees.
  std::string published() {
    done({"--cache", "build"}, "cd build; find . -type f | sort | tr '\n' ' ' > $OUT/published");
    return read("published");
  }
  // The names in the session's directory of caches.
  std::string copies() {
    return shell("ls -A '" + repository_ + "/escrow/sessions/" + session_ + "/caches' | tr '\n' ' '");
  }
  static constexpr const char* kKept = "./deep/er ./file ";
  std::vector<std::string> cache_{"--cache", "build"};
  std::string session_;
};

TEST_P(RestoredCache, BeginsAnewAndTheCommitPublishesNothingOfTheWreck) {
  begin();
  const int wreck = ::open(file("mnt/build/wreck").c_str(), O_RDWR | O_CLOEXEC);
  const int within = ::open(file("mnt/build").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_TRUE(wreck >= 0 && within >= 0);
  EXPECT_EQ("escrow: savepoints hold files of the repository only: the cache 'build' begins anew as last published\n",
            restored("good"));
  EXPECT_EQ("good\n", read("mnt/a.txt"));
  EXPECT_EQ(kKept, in_cache());
  EXPECT_EQ("kept\n", read("mnt/build/deep/er"));
  char text[6] = {};
  EXPECT_EQ(5, ::pread(wreck, text, 5, 0));
  EXPECT_STREQ("wreck", text) << "a file that is open stays what it was";
  EXPECT_EQ(4, ::pwrite(wreck, "late", 4, 0));
  const int late = ::openat(within, "late", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  EXPECT_GE(late, 0) << "and so does a directory";
  EXPECT_EQ(4, ::write(late, "late", 4));
  for (const int descriptor : {late, wreck, within}) ::close(descriptor);
  EXPECT_EQ(kKept, in_cache());
  EXPECT_NE(std::string::npos, shell("'" + std::string(ESCROW_BINARY) + "' --repo '" + repository_ +
                                     "' cache list --json").find("\"sessions\":1"));
  EXPECT_EQ(0, escrow({"gc"}).status);
  EXPECT_EQ(0, escrow({"verify"}).status);
  EXPECT_EQ(0, escrow({"commit", session_}).status);
  EXPECT_EQ(kKept, published());
}

TEST_P(RestoredCache, TakesRoomForTheLastWreckAndThoseThatSomebodyIsIn) {
  begin();
  const int wreck = ::open(file("mnt/build/wreck").c_str(), O_RDONLY | O_CLOEXEC);
  restored("good");
  EXPECT_EQ(".0.build build ", copies());
  for (int again = 0; again < 3; ++again) {
    make_wreck();
    restored("good");
  }
  // The kernel may take a moment to forget what nobody is in.
  EXPECT_TRUE(eventually([&] {
    make_wreck();
    restored("good");
    const std::string all = copies();
    return std::count(all.begin(), all.end(), ' ') <= 3;
  })) << copies();
  EXPECT_NE(std::string::npos, copies().find(".0.build")) << "somebody is in it";
  ::close(wreck);
  make_wreck();
  EXPECT_EQ(0, escrow({"unmount", session_}).status);
  restored("good");
  EXPECT_EQ("", copies());
}

TEST_P(RestoredCache, IsPublishedWithWhatCameAfterTheRestoreAlone) {
  begin();
  restored("good");
  make_wreck();
  EXPECT_NE(std::string::npos, restored("before-restore-1").find("'build' begins anew")) << "nor does the way back";
  EXPECT_EQ("wreck\n", read("mnt/a.txt"));
  EXPECT_EQ(kKept, in_cache());
  EXPECT_EQ("", restored("good")) << "a cache that the session has not changed stays";
  shell("cd '" + file("mnt/build") + "' && echo after > after && echo after >> file");
  EXPECT_EQ(0, escrow({"commit", session_}).status);
  EXPECT_EQ("./after ./deep/er ./file ", published());
  EXPECT_EQ("kept\nafter\n", seen("file"));
}

TEST_P(RestoredCache, BeginsAnewWhereTheSessionIsMountedNowhere) {
  begin();
  ASSERT_EQ(0, escrow({"unmount", session_}).status);
  EXPECT_NE(std::string::npos, restored("good").find("the cache 'build' begins anew as last published"));
  EXPECT_EQ("", copies()) << "nobody has it open";
  ASSERT_EQ(0, escrow({"mount", file("mnt"), "--session", session_}).status);
  EXPECT_EQ(kKept, in_cache());
  make_wreck();
  ASSERT_EQ(0, escrow({"unmount", session_}).status);
  restored("good");
  EXPECT_EQ(0, escrow({"commit", session_}).status);
  EXPECT_EQ(kKept, published());
}

TEST_P(RestoredCache, IsTheSameWhenTheHostIsKilledBehindTheRestore) {
  begin();
  const int wreck = ::open(file("mnt/build/wreck").c_str(), O_RDONLY | O_CLOEXEC);
  restored("good");
  EXPECT_EQ(".0.build build ", copies());
  const pid_t host = host_of(repository_, session_);
  ASSERT_GT(host, 0);
  ASSERT_EQ(0, ::kill(host, SIGKILL));
  ::close(wreck);
  ASSERT_TRUE(eventually([&] { return escrow({"mount", file("mnt"), "--session", session_}).status == 0; }));
  EXPECT_EQ(kKept, in_cache());
  EXPECT_EQ(0, escrow({"commit", session_}).status);
  EXPECT_EQ(kKept, published());
}

TEST_P(RestoredCache, SharesItsLimitsWithTheWreckThatSomebodyIsIn) {
  cache_ = {"--mount", "path=build,source=cache:build,entries_limit=4"};
  begin();
  const int within = ::open(file("mnt/build").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(within, 0);
  restored("good");
  const auto make = [](int directory, const std::string& name) {
    const int made = ::openat(directory, name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (made < 0) return errno;
    ::close(made);
    return 0;
  };
  EXPECT_EQ(0, make(AT_FDCWD, file("mnt/build/third")));
  EXPECT_EQ(0, make(within, "fourth"));
  EXPECT_EQ(EDQUOT, make(AT_FDCWD, file("mnt/build/fifth")));
  EXPECT_EQ(EDQUOT, make(within, "fifth"));
  EXPECT_EQ(0, escrow({"mounts", "remove", session_, "build"}).status);
  // The kernel may take a moment to forget the session's present copy of the cache, in which no program is.
  EXPECT_TRUE(eventually([&] { return escrow({"mounts", "add", session_, "--cache", "other=build"}).status == 0; }));
  EXPECT_EQ("kept\n", read("mnt/other/file"));
  ::close(within);
}

TEST_P(RestoredCache, LeavesOtherEntriesAsTheyAreAndSaysSo) {
  shell("mkdir '" + file("from") + "' && echo old > '" + file("from/one") + "'");
  begin({"--mount", "path=tmp,source=scratch,mode=read-write", "--inject", "over=" + file("from") + ",mode=overlay",
         "--inject", "fixed=" + file("from")});
  shell("cd '" + file("mnt") + "' && echo new > tmp/one && echo new > over/one");
  EXPECT_EQ("escrow: savepoints hold files of the repository only: the cache 'build' begins anew as last published, "
            "and what is below 'tmp', 'over' stays as it is\n",
            restored("good"));
  EXPECT_EQ("new\n", read("mnt/tmp/one"));
  EXPECT_EQ("new\n", read("mnt/over/one"));
}

std::string name_of_options(const testing::TestParamInfo<std::vector<std::string>>& tested) {
  return tested.param.empty() ? "Cached" : tested.param.back();
}

INSTANTIATE_TEST_SUITE_P(Every, RestoredCache,
                         testing::Values(std::vector<std::string>{}, std::vector<std::string>{"--opens", "daemon"},
                                         std::vector<std::string>{"--io", "writeback"},
                                         std::vector<std::string>{"--io", "passthrough"}),
                         name_of_options);

TEST_F(CacheOnTheKernel, WhatCannotBeIsRefusedBeforeAnythingIsOpened) {
  EXPECT_NE(std::string::npos, run({"--cache", "a=c", "--cache", "b=c"}, "true").err.find("at two paths"));
  EXPECT_NE(std::string::npos, run({"--cache", "/"}, "true").err.find("has the root for its path"));
  EXPECT_NE(std::string::npos, run({"--cache", "a="}, "true").err.find("is empty"));
  EXPECT_NE(std::string::npos,
            run({"--cache", "a", "--mount", "path=a/b,source=cache:d"}, "true").err.find("inside of"));
  done({"--mount", "path=b,source=cache:d"}, "echo x > b/f");
  done({"--mount", "path=b,source=cache:d,mode=read-only"}, "cat b/f && ! echo y > b/f");
}

}  // namespace
}  // namespace escrow::test
