// A project's own checkout: sessions begin at its HEAD, and its branch, index and files follow their commits.
#include <sys/mount.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/work/project_fixture.h"

namespace escrow::test {
namespace {

class Checkout : public Project {
 protected:
  void SetUp() override {
    set_up("mkdir -p src doc && echo 1 > src/a.c && echo 1 > src/b.c && echo 1 > doc/x && echo '*.o' > .gitignore");
  }

  ProcessResult run(const std::string& script, std::vector<std::string> options = {}) const {
    options.insert(options.begin(), "run");
    options.insert(options.end(), {"--", "sh", "-c", script});
    return escrow(options);
  }
  std::string read(const std::string& path) const { return in_project("cat '" + path + "'"); }
};

TEST_F(Checkout, ARunInItTakesBranchIndexAndFilesAlong) {
  const ProcessResult done =
      run("echo 2 > src/a.c; rm doc/x; mkdir new; echo n > new/f; ln -s f new/l; echo x > run.sh; chmod +x run.sh");
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_FALSE(has(done.err, "not committed")) << done.err;
  EXPECT_EQ(status(), "");
  EXPECT_EQ(git("rev-list --count HEAD"), "2");
  EXPECT_EQ(git("symbolic-ref HEAD"), "refs/heads/main");
  EXPECT_EQ(read("src/a.c") + read("src/b.c") + read("new/l") + in_project("readlink new/l"), "21nf");
  in_project("test -x run.sh && test ! -e doc");
  ASSERT_EQ(run("test -e new/f && echo 3 > src/a.c").status, 0) << "the next one begins where it ended";
  EXPECT_EQ(read("src/a.c"), "3");
  EXPECT_EQ(status(), "");
  const std::string head = git("rev-parse HEAD");
  EXPECT_EQ(run("echo 4 > src/a.c; exit 3").status, 3);
  EXPECT_EQ(git("rev-parse HEAD") + status() + read("src/a.c"), head + "3");
}

TEST_F(Checkout, WhatIsNotCommittedStaysAndIsCounted) {
  in_project("echo mine > src/b.c; echo staged > doc/x; git add doc/x; echo u > untracked; echo o > src/a.o");
  const ProcessResult done = run("cat src/b.c doc/x; test ! -e untracked && echo 2 > src/a.c; echo n > new");
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.out, "1\n1\n") << "the session is at HEAD";
  EXPECT_TRUE(has(done.err, "3 paths of " + project_ + " are not committed, and not in the session")) << done.err;
  EXPECT_EQ(read("src/a.c") + read("new") + read("src/b.c") + read("doc/x") + read("untracked") + read("src/a.o"),
            "2nminestageduo");
  EXPECT_EQ(status(), "M  doc/x\n M src/b.c\n?? untracked") << "and nothing else";
}

TEST_F(Checkout, WhatIsInTheWayIsNamedAndNothingMoves) {
  const std::string head = git("rev-parse HEAD");
  struct Case {
    std::string own, script, named;
  };
  for (const Case& one : {Case{"echo mine > src/a.c", "echo 2 > src/a.c; echo 2 > src/b.c", "src/a.c"},
                          Case{"echo mine > src/a.c; git add src/a.c", "rm src/a.c", "src/a.c"},
                          Case{"echo mine > new", "echo n > new", "new"},
                          Case{"mkdir new; echo mine > new/f", "echo n > new", "new"},
                          Case{"echo mine > new", "mkdir new; echo n > new/f", "new"},
                          Case{"rm src/a.c", "echo 2 > src/a.c", "src/a.c"}}) {
    in_project(one.own);
    const std::string before = in_project("git status --porcelain --ignored; cat src/* new* new/* 2>/dev/null || true");
    const ProcessResult refused = run(one.script);
    EXPECT_NE(refused.status, 0) << one.own << refused.err;
    EXPECT_TRUE(has(refused.err, "in the way: ") && has(refused.err, one.named)) << one.own << ": " << refused.err;
    EXPECT_EQ(git("rev-parse HEAD"), head) << one.own;
    EXPECT_EQ(in_project("git status --porcelain --ignored; cat src/* new* new/* 2>/dev/null || true"), before);
    // Nothing is lost: once the way is free, the session is committed as it is.
    const std::string id = refused.err.substr(refused.err.find("session ") + 8, 16);
    in_project("git reset -q --hard && git clean -qfdx");
    const ProcessResult committed = escrow({"commit", id});
    EXPECT_EQ(committed.status, 0) << one.own << ": " << committed.err;
    EXPECT_EQ(status(), "") << one.own;
    in_project("git reset -q --hard " + head);
  }
}

TEST_F(Checkout, AnotherBranchAndAnotherWorkTreeHaveTheirOwn) {
  in_project("git branch other && git worktree add -q ../linked -b linked && git branch free");
  ASSERT_EQ(run("echo free > src/a.c", {"--branch", "free"}).status, 0);
  EXPECT_EQ(read("src/a.c") + status(), "1") << "the branch is not checked out here";
  EXPECT_EQ(git("show free:src/a.c"), "free");

  const std::string linked = directory_.path() + "/linked";
  const ProcessOptions there{.directory = linked, .environment = {}, .input = {}};
  const ProcessResult done = run_escrow({"run", "--", "sh", "-c", "echo linked > src/a.c"}, there);
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(shell("git symbolic-ref --short HEAD && cat src/a.c && git status --porcelain", there), "linked\nlinked");
  EXPECT_EQ(read("src/a.c") + status(), "1");
  // From one about the other's branch.
  ASSERT_EQ(run("echo again > src/a.c", {"--branch", "linked"}).status, 0);
  EXPECT_EQ(shell("cat src/a.c && git status --porcelain", there), "again");

  shell("git checkout -q --detach", there);
  const ProcessResult nowhere = run_escrow({"run", "--", "true"}, there);
  EXPECT_EQ(nowhere.status, 125);
  EXPECT_TRUE(has(nowhere.err, "is on no branch")) << nowhere.err;
}

// A planted core.fsmonitor is a command that git runs, as whoever calls it.
TEST_F(Checkout, ADirectoryInPlaceOfAWorkTreeRunsNoCommand) {
  const std::string ran = directory_.path() + "/ran", linked = directory_.path() + "/linked";
  const std::string plant = "git config core.fsmonitor 'touch " + ran + "; false'";
  in_project("git worktree add -q ../linked -b linked && rm -rf ../linked && git clone -q -b linked . ../linked && "
             "cd ../linked && " + plant);
  const auto commit = [&](const std::string& content) {
    const ProcessResult done = run("echo " + content + " > src/a.c", {"--branch", "linked"});
    EXPECT_EQ(done.status, 0) << done.err;
    EXPECT_EQ(git("show linked:src/a.c"), content);
    EXPECT_NE(::access(ran.c_str(), F_OK), 0) << "the planted command has run";
  };
  commit("2");
  // The same where a .git leads to a repository that only says that it is one of ours.
  in_project("cd ../linked && mv .git ../planted && echo 'gitdir: ../planted' > .git && "
             "echo ../project/.git > ../planted/commondir");
  commit("3");
  EXPECT_EQ(shell("cat '" + linked + "/src/a.c'"), "1");
  // The same where the repository's own entry leads there.
  in_project("cd ../linked && echo 'gitdir: " + project_ + "/.git/worktrees/linked' > .git && git reset -q --hard && "
             "echo '" + directory_.path() + "/planted' > ../project/.git/worktrees/linked/commondir");
  commit("4");
}

// Of a bare repository, which had none when the session began.
TEST_F(Checkout, AWorkTreeThatComesWhileASessionIsOpenFollows) {
  in_project("git clone -q --bare . ../bare.git && mkdir ../mount");
  const std::string bare = directory_.path() + "/bare.git", mount = directory_.path() + "/mount";
  const ProcessOptions there{.directory = directory_.path(), .environment = {}, .input = {}};
  ASSERT_EQ(run_escrow({"--repo", bare, "init"}, there).status, 0);
  const ProcessResult mounted = run_escrow({"--repo", bare, "mount", mount}, there);
  ASSERT_EQ(mounted.status, 0) << mounted.err;
  shell("git -C bare.git worktree add -q ../late main && echo 2 > mount/src/a.c", there);
  const ProcessResult done = run_escrow({"commit"}, {.directory = mount, .environment = {}, .input = {}});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(shell("git -C late status --porcelain && cat late/src/a.c", there), "2");
}

// As long as its disk is not mounted.
TEST_F(Checkout, TheBranchOfAWorkTreeThatIsNotThereDoesNotMove) {
  in_project("git worktree add -q ../linked -b linked && git worktree lock ../linked && mv ../linked ../away");
  const std::string before = git("rev-parse linked"), linked = directory_.path() + "/linked";
  const auto commit = [&] { return run("echo 2 > src/a.c", {"--branch", "linked"}); };
  for (const char* rest : {"", "mkdir ../linked"}) {
    in_project(rest);
    const ProcessResult refused = commit();
    EXPECT_NE(refused.status, 0);
    EXPECT_TRUE(has(refused.err, linked + ", which is not there")) << refused.err;
    EXPECT_EQ(git("rev-parse linked"), before);
  }
  // One that a killed command left behind is not forgotten.
  const std::string record = project_ + "/.git/escrow/checkouts.behind";
  shell("printf 'linked\\000" + before + "\\000" + linked + "\\000' > '" + record + "'");
  escrow({"sessions"});
  EXPECT_EQ(::access(record.c_str(), F_OK), 0);
  in_project("rmdir ../linked && mv ../away ../linked");
  ASSERT_EQ(commit().status, 0);
  EXPECT_EQ(shell("git -C '" + linked + "' status --porcelain; cat '" + linked + "/src/a.c'"), "2");
  EXPECT_NE(::access(record.c_str(), F_OK), 0);
  in_project("rm -r ../linked && git worktree remove --force --force ../linked");
  EXPECT_EQ(commit().status, 0) << "as the sentence says";
}

TEST_F(Checkout, AWorkTreeOfAnyNameFollows) {
  const std::string name = directory_.path() + "/new\nline ' and \" $blanks ";
  ASSERT_EQ(run_process({"git", "-C", project_, "worktree", "add", "-q", name, "-b", "named"}).status, 0);
  ASSERT_EQ(run("echo 2 > src/a.c", {"--branch", "named"}).status, 0);
  EXPECT_EQ(run_process({"git", "-C", name, "status", "--porcelain"}).out, "");
  EXPECT_EQ(run_process({"cat", name + "/src/a.c"}).out, "2\n");
}

TEST_F(Checkout, AWorkTreeOfAnotherUserIsTakenAlongOnlyIfItIsTrusted) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory to another user";
  const std::string linked = directory_.path() + "/linked", home = directory_.path() + "/home";
  in_project("git worktree add -q ../linked -b linked && chown -R 65534:65534 ../linked && mkdir ../home");
  const std::string before = git("rev-parse linked");
  const ProcessOptions at_home{.directory = project_, .environment = {{"HOME", home}}, .input = {}};
  const std::vector<std::string> words = {"run", "--branch", "linked", "--", "sh", "-c", "echo 2 > src/a.c"};
  const ProcessResult refused = run_escrow(words, at_home);
  EXPECT_NE(refused.status, 0);
  EXPECT_TRUE(has(refused.err, "belongs to another user") && has(refused.err, "safe.directory")) << refused.err;
  EXPECT_EQ(git("rev-parse linked") + shell("cat '" + linked + "/src/a.c'"), before + "1");
  shell("printf '[safe]\\n\\tdirectory = " + linked + "\\n' > '" + home + "/.gitconfig'");
  const ProcessResult done = run_escrow(words, at_home);
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(git("show linked:src/a.c") + shell("cat '" + linked + "/src/a.c'"), "22");
  // One that a command of its owner left behind stays his to mend.
  const std::string record = project_ + "/.git/escrow/checkouts.behind";
  shell("printf 'linked\\000" + before + "\\000" + linked + "\\000' > '" + record + "'");
  escrow({"sessions"});
  EXPECT_EQ(::access(record.c_str(), F_OK), 0);
  shell("chown -R 0:0 '" + linked + "'");
  escrow({"sessions"});
  EXPECT_NE(::access(record.c_str(), F_OK), 0);
}

TEST_F(Checkout, ASessionByHandAndAnImportTakeItAlong) {
  in_project("mkdir work ../in && echo i > ../in/imported");
  const std::string point = project_ + "/work";  // the mount of the session is in the very checkout that follows
  const ProcessResult mounted = escrow({"mount", point});
  ASSERT_EQ(mounted.status, 0) << mounted.err;
  const std::string id = mounted.out.substr(0, 16);
  shell("echo 2 > '" + point + "/src/a.c'");
  const ProcessResult committed = escrow({"commit", id});
  if (committed.status != 0) ::umount2(point.c_str(), MNT_DETACH);
  ASSERT_EQ(committed.status, 0) << committed.err;
  EXPECT_EQ(read("src/a.c") + status(), "2");
  in_project("rmdir work");
  ASSERT_EQ(escrow({"import", directory_.path() + "/in", "--path-prefix", "got"}).status, 0);
  EXPECT_EQ(read("got/imported") + status(), "i");
}

TEST_F(Checkout, RunsAtOnceAllArrive) {
  shell("for n in 1 2 3 4; do (cd '" + project_ + "' && '" ESCROW_BINARY "' run -- sh -c \"echo $n > f$n\" "
        "2> ../err$n) & done; wait");
  EXPECT_EQ(status(), "") << shell("cat '" + directory_.path() + "'/err*");
  EXPECT_EQ(in_project("cat f1 f2 f3 f4 | tr -d '\\n'"), "1234");
  EXPECT_EQ(git("rev-list --count HEAD"), "5");
}

// Killed after the branch has moved, before the files follow: git itself is made to wait there.
TEST_F(Checkout, ACheckoutThatAKilledCommandLeftBehindIsMendedByTheNext) {
  const std::string head = git("rev-parse HEAD");
  ASSERT_EQ(run("echo 2 > src/a.c; rm doc/x; echo n > new").status, 0);
  const std::string moved = git("rev-parse HEAD");
  const auto leave_behind = [&](const std::string& more) {
    // As it is between the move of the branch and the files: the record is written before the first.
    in_project("git reset -q --hard " + head + " && git update-ref refs/heads/main " + moved +
               " && printf 'main\\0%s\\0%s\\0' " + head + " \"$PWD\" > .git/escrow/checkouts.behind; " + more);
  };
  leave_behind("true");
  EXPECT_NE(status(), "");
  const ProcessResult next = escrow({"sessions"});
  EXPECT_TRUE(has(next.err, "follows it again")) << next.err;
  EXPECT_EQ(status() + read("src/a.c") + read("new"), "2n");
  in_project("test ! -e .git/escrow/checkouts.behind");
  EXPECT_FALSE(has(escrow({"sessions"}).err, "follows")) << "said once";

  leave_behind("echo mine > src/a.c; echo mine > src/b.c");
  const ProcessResult cannot = escrow({"sessions"});
  EXPECT_TRUE(has(cannot.err, "cannot follow") && has(cannot.err, "src/a.c")) << cannot.err;
  EXPECT_EQ(read("src/a.c") + read("src/b.c"), "minemine") << "nobody's work is overwritten";
  in_project("git checkout -q " + head + " -- src/a.c");
  EXPECT_TRUE(has(escrow({"sessions"}).err, "follows it again"));
  EXPECT_EQ(read("src/a.c") + read("src/b.c") + read("new"), "2minen");

  in_project("git reset -q --hard " + moved);
  leave_behind("true");
  ASSERT_EQ(run("echo 3 > src/a.c").status, 0) << "a commit mends it first";
  EXPECT_EQ(status() + read("src/a.c") + read("new"), "3n");

  // What is recorded is no more so: somebody has taken the work tree elsewhere, or the branch never moved.
  in_project("git checkout -q -b mine && printf 'main\\0%s\\0%s\\0' " + head +
             " \"$PWD\" > .git/escrow/checkouts.behind");
  EXPECT_EQ(escrow({"sessions"}).err, "");
  EXPECT_EQ(status() + read("src/a.c"), "3");
}

// git names everything that has changed: the file that is in the way comes after more than a megabyte of names.
TEST_F(Checkout, WhatIsInTheWayIsFoundBehindAnyNumberOfNames) {
  const std::string long_name(200, 'n');
  in_project("mkdir many && cd many && for n in $(seq 10000 16000); do : > " + long_name + "$n; done && cd .. && " +
             "echo 1 > zz && git add . && git commit -qm many && rm zz");
  const ProcessResult refused = run("for f in many/*; do echo 2 > $f; done; echo 2 > zz");
  EXPECT_NE(refused.status, 0);
  EXPECT_TRUE(has(refused.err, "in the way: zz")) << refused.err;
  EXPECT_EQ(status(), " D zz") << "what is not committed stays as it is";
}

// A real kill, of the command and its process group, at any moment of the commit: git, which changes the work tree,
// holds the turn until it has come to its end.
TEST_F(Checkout, AKilledCommitLeavesTheCheckoutOnOneOfTheTwo) {
  in_project("mkdir many && cd many && for n in $(seq 200); do echo 1 > f$n; done && git add . && git commit -qm many");
  for (int trial = 0; trial < 6; ++trial) {
    const std::string value = std::to_string(trial + 2);
    shell("mkdir -p '" + directory_.path() + "/mnt'");
    const ProcessResult mounted = escrow({"mount", directory_.path() + "/mnt"});
    ASSERT_EQ(mounted.status, 0) << mounted.err;
    const std::string id = mounted.out.substr(0, 16);
    shell("cd '" + directory_.path() + "/mnt/many' && for n in $(seq 200); do echo " + value + " > f$n; done; " +
          "cd / && umount '" + directory_.path() + "/mnt'");
    shell("cd '" + project_ + "' && timeout -s KILL 0.0" + std::to_string(trial + 3) + " '" ESCROW_BINARY "' commit " +
          id + " > /dev/null 2>&1 || true");
    wait_for_the_turn();
    EXPECT_EQ(escrow({"sessions"}).status, 0);
    const std::string old = std::to_string(trial == 0 ? 1 : trial + 1);
    EXPECT_EQ(status(), "") << "trial " << trial;
    const std::string values = in_project("cat many/* | sort -u");
    EXPECT_TRUE(values == value || values == old) << values;
    if (values == old) {
      const ProcessResult again = escrow({"commit", id});
      EXPECT_EQ(again.status, 0) << again.err;
    }
    EXPECT_EQ(in_project("cat many/* | sort -u") + status(), value);
  }
}

}  // namespace
}  // namespace escrow::test
