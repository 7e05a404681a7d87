// A `git switch` is under way while a session is committed to the branch that it comes onto, or leaves: git reads the
// branch first, then writes index and files, and changes HEAD last.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/work/project_fixture.h"

namespace escrow::test {
namespace {

class CheckoutSwitch : public Project {
 protected:
  void SetUp() override {
    set_up("mkdir src && echo 1 > src/a && echo 1 > src/b && echo 1 > slow && "
           "echo 'slow filter=slow' > .gitattributes");
    in_project("git switch -q -c dev && git rm -q slow && git commit -qm 'without slow'");
  }

  ProcessResult run(const std::string& script) const {
    return run_escrow({"run", "--branch", "main", "--", "sh", "-c", script}, with_path_);
  }
  std::string read(const std::string& path) const { return in_project("cat '" + path + "'"); }
  bool has_record() const { return ::access((project_ + "/.git/escrow/checkouts.behind").c_str(), F_OK) == 0; }

  // A git that Escrow finds first: after the `number`th time that it lists the work trees for a commit, git switches,
  // and the user does `more`. Escrow is killed at the `kill_at`th look for the commit that git had read.
  void switch_after_list(int number, const std::string& branch, const std::string& more = "true", int kill_at = 0) {
    const std::string bin = directory_.path() + "/bin", real = shell("command -v git");
    ASSERT_EQ(::mkdir(bin.c_str(), 0755), 0);
    const std::string lists = bin + "/lists", looks = bin + "/looks";
    std::ofstream(bin + "/git") << "#!/bin/sh\n'" << real << "' \"$@\"\nstatus=$?\ncase \"$*\" in *'worktree list'*)\n"
                                << "  echo >> '" << lists << "'\n"
                                << "  [ $(wc -l < '" << lists << "') != " << number << " ] || "
                                << "(cd '" << project_ << "' && '" << real << "' switch -q " << branch << " && "
                                << more << ");;\n"
                                << "*rev-list*) echo >> '" << looks << "'\n"
                                << "  [ $(wc -l < '" << looks << "') != " << kill_at << " ] || kill -9 $PPID;;\n"
                                << "esac\nexit $status\n";
    ASSERT_EQ(::chmod((bin + "/git").c_str(), 0755), 0);
    with_path_.environment = {{"PATH", bin + ":" + std::getenv("PATH")}};
  }

  ProcessOptions with_path_ = here();
};

constexpr const char* kMended = "to 'main' while that moved; it follows";

// The smudge filter of a file stands for all that takes its time. Two commits come meanwhile, of different files: the
// first one by git, the second one of a session, which releases the filter as soon as the branch has moved.
TEST_F(CheckoutSwitch, SwitchThatEndsBehindTwoCommitsFollowsBoth) {
  in_project("mkfifo ../begun ../go ../ended && printf 'echo > ../begun; read go < ../go; cat' > ../smudge && "
             "git config filter.slow.smudge 'sh ../smudge' && "
             "{ (git switch -q main; echo $? > ../ended) > ../said 2>&1 & } && cat ../begun");
  in_project("export GIT_INDEX_FILE=$PWD/../other && git read-tree main && "
             "git update-index --cacheinfo 100644,$(echo 2 | git hash-object -w --stdin),src/b && "
             "git update-ref refs/heads/main $(git commit-tree -p main -m second $(git write-tree))");
  const std::string done = in_project(
      "before=$(git rev-parse main); '" ESCROW_BINARY "' run --branch main -- sh -c 'echo 2 > src/a' 2> ../said & "
      "until test $(git rev-parse main) != $before || ! kill -0 $! 2> /dev/null; do "
      "touch -c .git/index.lock; sleep 0.01; done; echo > ../go; cat ../ended; wait $!; echo $?");
  const std::string said = in_project("cat ../said");
  EXPECT_EQ(done, "0\n0") << said;
  EXPECT_TRUE(has(said, kMended)) << said;
  EXPECT_EQ(status() + read("src/a") + read("src/b") + git("symbolic-ref HEAD"), "22refs/heads/main");
  EXPECT_FALSE(has_record());
}

TEST_F(CheckoutSwitch, SwitchBetweenTheLookAndTheMoveFollowsAndKeepsWhatIsStaged) {
  in_project("echo own > src/b && git add src/b && echo u > untracked");
  switch_after_list(1, "main");
  const ProcessResult done = run("echo 2 > src/a; echo n > new");
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_TRUE(has(done.err, kMended)) << done.err;
  EXPECT_EQ(status(), "M  src/b\n?? untracked");
  EXPECT_EQ(read("src/a") + read("src/b") + read("new") + git("symbolic-ref HEAD"), "2ownnrefs/heads/main");
  EXPECT_FALSE(has_record());
}

TEST_F(CheckoutSwitch, FileThatCannotBeWrittenIsNamedAndFollowsLater) {
  switch_after_list(1, "main");
  make_unwritable("src");
  const ProcessResult done = run("echo 2 > src/a; echo n > new");
  const std::string kept = status();
  make_writable("src");
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_TRUE(has(done.err, "not as committed: src/a (")) << done.err;
  EXPECT_EQ(kept + read("src/a") + read("new"), " M src/a1n") << "and nothing is staged";
  EXPECT_TRUE(has(escrow({"sessions"}).err, "follows it again"));
  EXPECT_EQ(status() + read("src/a"), "2");
  EXPECT_FALSE(has_record());
}

TEST_F(CheckoutSwitch, SwitchToAnotherBranchIsNotInTheWay) {
  in_project("echo dev > src/a && git commit -qam dev && git switch -q main");
  switch_after_list(2, "dev");
  const ProcessResult done = run("echo 2 > src/a");
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(status() + read("src/a") + git("show main:src/a") + git("symbolic-ref HEAD"), "dev2refs/heads/dev");
}

TEST_F(CheckoutSwitch, DeletionThatTheSwitchCarriesAlongStays) {
  in_project("rm src/a");
  switch_after_list(1, "main");
  const ProcessResult done = run("echo 2 > src/a; echo 2 > src/b");
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_TRUE(has(done.err, "it is behind: ")) << done.err;
  in_project("test ! -e src/a");
  EXPECT_EQ(read("src/b"), "1");
  EXPECT_FALSE(has_record());
}

// The second look is under the lock of the index; nothing is decided before it.
TEST_F(CheckoutSwitch, KillAtALookLeavesTheWorkTreeAsItIs) {
  in_project("rm src/a");
  switch_after_list(1, "main", "true", 2);
  const ProcessResult done = run("echo 2 > src/a; echo 2 > src/b");
  EXPECT_NE(done.status, 0) << done.err;
  EXPECT_EQ(git("show main:src/b"), "2");
  in_project("test -e .git/index.lock");
  EXPECT_TRUE(has_record());
  EXPECT_EQ(escrow({"sessions"}).status, 0);
  in_project("test ! -e src/a && test ! -e .git/index.lock");
  EXPECT_EQ(read("src/b"), "1");
  EXPECT_FALSE(has_record());
}

TEST_F(CheckoutSwitch, StagedChangesOfTheUsersStay) {
  switch_after_list(1, "main", "echo own > src/b && git add src/b");
  const ProcessResult done = run("echo 2 > src/a");
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(git("show :src/b") + read("src/b"), "ownown");
  EXPECT_FALSE(has_record());
}

// An old lock is of an editor that is open, or of nobody.
TEST_F(CheckoutSwitch, WorkTreeOfAnotherBranchIsLeftAlone) {
  in_project("echo own > own && git add own && touch -d '1 hour ago' .git/index.lock");
  const ProcessResult done = run("echo 2 > src/a");
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_FALSE(has(done.err, "work tree")) << done.err;
  EXPECT_EQ(in_project("stat -c %s .git/index.lock && rm .git/index.lock"), "0") << "it is not Escrow's";
  EXPECT_EQ(status() + read("src/a") + git("symbolic-ref HEAD"), "A  own1refs/heads/dev");
}

// HEAD of a bare repository names a branch, too.
TEST_F(CheckoutSwitch, BareRepositoryWithLinkedWorkTreesGetsNoWorkTreeOfItsOwn) {
  in_project("git clone -q --bare . ../bare/.git && git -C ../bare worktree add -q -b other linked main");
  const ProcessOptions there{.directory = directory_.path() + "/bare/linked", .environment = {}, .input = {}};
  ASSERT_EQ(run_escrow({"init"}, there).status, 0);
  const ProcessResult done = run_escrow({"run", "--branch", "main", "--", "sh", "-c", "echo n > new"}, there);
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(in_project("cd ../bare && ls && git -C linked status --porcelain && git show main:new"), "linked\nn");
}

}  // namespace
}  // namespace escrow::test
