// A checkout follows under git's own lock of the index: no commit of a person's is taken for one that takes back what a
// session committed, and no lock of git's makes a commit fail that only has to wait.
#include <sys/mount.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/work/project_fixture.h"

namespace escrow::test {
namespace {

class CheckoutLock : public Project {
 protected:
  void SetUp() override { set_up("mkdir src && echo 1 > src/a && echo 1 > src/b && echo 1 > c"); }

  ProcessResult run(const std::string& script) const { return escrow({"run", "--", "sh", "-c", script}); }
  std::string read(const std::string& path) const { return in_project("cat '" + path + "'"); }
  // What a person commits who has staged one more file, and nothing else.
  std::string changed_by_a_plain_commit() const {
    in_project("echo own >> own && git add own && git commit -qm own");
    return git("show --format= --name-status HEAD");
  }
  bool has_record() const { return ::access((project_ + "/.git/escrow/checkouts.behind").c_str(), F_OK) == 0; }

  const std::string lock_ = project_ + "/.git/index.lock";
};

TEST_F(CheckoutLock, ACommitWaitsForAGitThatUnlocksTheIndex) {
  // The lock goes as soon as the commit has written down that it takes the work tree along.
  const std::string done = in_project(
      "touch .git/index.lock; '" ESCROW_BINARY "' run -- sh -c 'echo 2 > src/a' 2> ../said & "
      "until test -e .git/escrow/checkouts.behind || ! kill -0 $! 2> /dev/null; do sleep 0.01; done; "
      "rm .git/index.lock; wait $!; echo $?");
  EXPECT_EQ(done, "0") << in_project("cat ../said");
  EXPECT_EQ(status() + read("src/a"), "2");
  EXPECT_FALSE(has_record());
}

TEST_F(CheckoutLock, ALockThatStaysIsNamedAndNothingMoves) {
  const std::string head = git("rev-parse HEAD");
  in_project("touch .git/index.lock");
  const ProcessResult refused = run("echo 2 > src/a; rm c");
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(has(refused.err, lock_) && has(refused.err, "remove the lock")) << refused.err;
  EXPECT_EQ(git("rev-parse HEAD") + read("src/a") + read("c"), head + "11");
  EXPECT_FALSE(has_record());
  EXPECT_EQ(in_project("stat -c %s .git/index.lock; rm .git/index.lock"), "0") << "it is not Escrow's";
  EXPECT_EQ(status(), "");
  const std::string id = refused.err.substr(refused.err.find("session ") + 8, 16);
  EXPECT_EQ(escrow({"commit", id}).status, 0);
  EXPECT_EQ(status() + read("src/a"), "2");
}

// A directory that cannot be written: for root it is mounted read-only.
TEST_F(CheckoutLock, AFileThatCannotBeWrittenIsNamedAndNoPlainCommitTakesTheCommitBack) {
  make_unwritable("src");
  const ProcessResult done = run("echo 2 > src/a; rm src/b; echo 2 > c; echo n > new");
  const std::string kept = status();
  const std::string in_commit = changed_by_a_plain_commit();
  const ProcessResult again = escrow({"sessions"});
  const ProcessResult next = run("echo 3 > c");
  make_writable("src");
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_TRUE(has(done.err, "not as committed: src/a, src/b")) << done.err;
  EXPECT_EQ(kept, " M src/a\n?? src/b") << "and nothing is staged";
  EXPECT_EQ(in_commit, "A\town");
  EXPECT_TRUE(has(again.err, "cannot follow: src/a, src/b")) << again.err;
  EXPECT_EQ(next.status, 0) << next.err;
  EXPECT_EQ(read("c") + read("new") + read("src/a"), "3n1");
  const ProcessResult last = escrow({"sessions"});
  EXPECT_TRUE(has(last.err, "follows it again")) << last.err;
  EXPECT_EQ(status() + read("src/a"), "2");
  in_project("test ! -e src/b");
  EXPECT_FALSE(has_record());
}

TEST_F(CheckoutLock, FilesThatAreAsCommittedAlreadyMendWithoutAWord) {
  const std::string head = git("rev-parse HEAD");
  ASSERT_EQ(run("echo 2 > src/a; rm c; echo n > new").status, 0);
  const std::string record = "printf 'main\\0%s\\0%s\\0' " + head + " \"$PWD\" > .git/escrow/checkouts.behind; ";
  in_project(record);
  EXPECT_EQ(escrow({"sessions"}).err, "") << "killed before the record went";
  EXPECT_FALSE(has_record());
  // Killed before the index: a person, or git, has the files already.
  in_project(record + "git read-tree " + head);
  EXPECT_TRUE(has(escrow({"sessions"}).err, "follows it again"));
  EXPECT_EQ(status() + read("src/a") + read("new"), "2n");
  // Killed between index and files, in the middle of which a person has gone on, and has removed the lock by hand.
  in_project(record + "echo 1 > src/a; echo mine > new; echo 1 > c");
  EXPECT_TRUE(has(escrow({"sessions"}).err, "follows it again"));
  EXPECT_EQ(status() + read("src/a") + read("new"), " M new2mine");
  EXPECT_FALSE(has_record());
  // The same with a file that is staged: it is the person's, and the rest follows.
  in_project("git reset -q --hard; " + record + "echo 1 > src/a; echo mine > new; git add new; echo 1 > c");
  const ProcessResult staged = escrow({"sessions"});
  EXPECT_TRUE(has(staged.err, "cannot follow: new")) << staged.err;
  EXPECT_EQ(status() + read("src/a") + read("new"), "M  new2mine");
  in_project("git reset -q --hard");
  EXPECT_EQ(escrow({"sessions"}).err, "");
}

TEST_F(CheckoutLock, ALockOfAKilledCommandGoesWithTheNext) {
  const std::string head = git("rev-parse HEAD");
  // As it is in the middle of a commit: a smudge filter, which git runs for each file, kills whoever started git.
  in_project("git config filter.kill.smudge "
             "'until test -s ../parent; do sleep 0.01; done; kill -KILL $(cat ../parent); cat' && "
             "git config filter.kill.clean cat && git config escrow.filters raw && "
             "mkdir -p .git/info && echo '/c filter=kill' > .git/info/attributes");
  in_project("'" ESCROW_BINARY "' run -- sh -c 'echo 2 > src/a; echo 2 > c' 2> ../said & echo $! > ../parent; wait $! "
             "|| true");
  wait_for_the_turn();
  EXPECT_NE(git("rev-parse HEAD"), head);
  EXPECT_EQ(::access(lock_.c_str(), F_OK), 0) << "the case is not made";
  EXPECT_NE(run_process({"git", "-C", project_, "commit", "--allow-empty", "-qm", "refused"}).status, 0);
  EXPECT_EQ(escrow({"sessions"}).status, 0);
  EXPECT_NE(::access(lock_.c_str(), F_OK), 0);
  EXPECT_EQ(status() + read("src/a") + read("c"), "22");
  EXPECT_EQ(changed_by_a_plain_commit(), "A\town");
}

// As after a kill between branch and index. A person's commit is tried before each git that the next command runs.
TEST_F(CheckoutLock, NoCommitComesBetweenALockThatIsLeftAndTheMend) {
  const std::string head = git("rev-parse HEAD");
  ASSERT_EQ(run("echo 2 > src/a; rm c; echo n > new").status, 0);
  in_project("git read-tree -m -u HEAD " + head + " && echo own > own && git add own && "
             "printf 'main\\0%s\\0%s\\0' " + head + " \"$PWD\" > .git/escrow/checkouts.behind && "
             "echo 'Escrow takes this work tree along with its branch. The next escrow command removes this lock if it "
             "was left behind.' > .git/index.lock && mkdir ../bin && ln -s \"$(command -v git)\" ../real_git");
  std::ofstream(directory_.path() + "/bin/git")
      << "#!/bin/sh\n(unset GIT_COMMON_DIR GIT_INDEX_FILE; cd '" + project_ + "'; echo >> ../tries; "
         "../real_git commit -qm own > /dev/null 2>&1)\nexec '" + directory_.path() + "/real_git' \"$@\"\n";
  const std::string said = in_project("chmod +x ../bin/git; PATH=\"${PWD%/*}/bin:$PATH\" '" ESCROW_BINARY
                                      "' sessions 2>&1");
  EXPECT_TRUE(has(said, "follows it again")) << said;
  EXPECT_EQ(::access((directory_.path() + "/tries").c_str(), F_OK), 0) << "the case is not made";
  in_project("git commit -qm own || true");
  EXPECT_EQ(git("show --format=%s --name-status HEAD"), "own\n\nA\town");
  EXPECT_EQ(status() + read("src/a") + read("new"), "2n");
}

// Commits that another work tree follows, or that are refused, leave it on record.
TEST_F(CheckoutLock, AWorkTreeThatCouldNotFollowFollowsAfterOtherCommits) {
  const std::string head = git("rev-parse HEAD");
  ASSERT_EQ(run("echo 2 > src/a; rm c; echo n > new").status, 0);
  in_project("git worktree add -q ../linked -b linked && git read-tree -m -u HEAD " + head + " && "
             "printf 'main\\0%s\\0%s\\0' " + head + " \"$PWD\" > .git/escrow/checkouts.behind && "
             "touch .git/index.lock");
  const ProcessOptions linked{.directory = directory_.path() + "/linked", .environment = {}, .input = {}};
  const ProcessResult done = run_escrow({"run", "--", "sh", "-c", "echo 3 > src/b"}, linked);
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_TRUE(has(done.err, "cannot follow: git has its index locked")) << done.err;
  EXPECT_EQ(shell("git status --porcelain; cat src/b; echo own > src/b", linked), "3");
  EXPECT_TRUE(has_record());
  const ProcessResult refused = run_escrow({"run", "--", "sh", "-c", "echo 4 > src/b"}, linked);
  EXPECT_EQ(refused.status, 125) << refused.err;
  EXPECT_TRUE(has(refused.err, "in the way: src/b")) << refused.err;
  EXPECT_TRUE(has_record());
  in_project("rm .git/index.lock");
  EXPECT_TRUE(has(escrow({"sessions"}).err, "follows it again"));
  EXPECT_FALSE(has_record());
  EXPECT_EQ(status() + read("src/a") + read("new"), "2n");
  EXPECT_EQ(changed_by_a_plain_commit(), "A\town");
}

TEST_F(CheckoutLock, AMergeThatIsNotResolvedIsInTheWayAlsoOfACommitOfOtherFiles) {
  in_project("git checkout -q -b side && echo side > c && git commit -qam side && git checkout -q main && "
             "echo main > c && git commit -qam main && ! git merge side");
  const std::string before = git("rev-parse HEAD") + status();
  const ProcessResult refused = run("echo 2 > src/a");
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(has(refused.err, "is in the way: ") && has(refused.err, "commit, stash or remove it there"))
      << refused.err;
  EXPECT_EQ(git("rev-parse HEAD") + status(), before);
  EXPECT_FALSE(has_record());
}

// An entry of the index that is as old as the index itself says nothing about its file: not in a copy either.
TEST_F(CheckoutLock, AChangeWithinTheSecondOfTheIndexIsInTheWay) {
  in_project("git config core.trustctime false && touch -d 2020-01-01 c && git update-index --refresh && "
             "touch -d 2020-01-01 .git/index && echo 9 > c && touch -d 2020-01-01 c");
  const ProcessResult refused = run("echo 2 > c");
  EXPECT_NE(refused.status, 0);
  EXPECT_TRUE(has(refused.err, "in the way: c")) << refused.err;
  EXPECT_EQ(read("c"), "9");
}

TEST_F(CheckoutLock, AnIndexWithExtensionsAndStagedFilesGoesOn) {
  in_project("git worktree add -q ../linked -b linked && for tree in . ../linked; do (cd $tree && "
             "git update-index --split-index && git update-index --untracked-cache && "
             "git config core.splitIndex true && git config core.untrackedCache true && "
             "echo s > staged && git add staged && git status) || exit; done");
  for (const std::string value : {"2", "3", "4"}) {
    for (const std::string tree : {"project", "linked"}) {
      const ProcessOptions there{.directory = directory_.path() + "/" + tree, .environment = {}, .input = {}};
      const ProcessResult done = run_escrow({"run", "--", "sh", "-c", "echo " + value + " > c; echo n > new"}, there);
      ASSERT_EQ(done.status, 0) << done.err;
      EXPECT_EQ(shell("git status --porcelain && cat c new && git fsck --strict", there),
                "A  staged\n" + value + "\nn");
    }
  }
}

// The person's commit is tried from the moment on at which a session's takes the work tree along, until it is made.
TEST_F(CheckoutLock, CommitsOfAPersonBesideThoseOfSessionsTakeNothingBack) {
  const std::string count = "12";
  in_project("(for n in $(seq " + count + "); do until test -e .git/escrow/checkouts.behind || test -e ../done$n; "
             "do sleep 0.001; done; echo $n > own$n; "
             "until git add own$n 2> /dev/null && git commit -qm \"own $n\" > /dev/null 2>&1; do :; done; "
             "until test -e ../done$n; do sleep 0.01; done; done) & "
             "for n in $(seq " + count + "); do '" ESCROW_BINARY "' run -- sh -c \"echo $n > c; echo $n > of$n\" "
             "> ../said$n 2>&1 || echo $n >> ../failed; touch ../done$n; done; wait");
  EXPECT_EQ(in_project("cat ../said* > ../all; test ! -e ../failed || cat ../all"), "");
  EXPECT_EQ(in_project("git log --format=%H --grep='^own' | while read -r id; do "
                       "git show --format= --name-status $id; done | grep -v '^A.own[0-9]*$' || true"), "");
  EXPECT_EQ(status() + read("c"), count);
  EXPECT_EQ(in_project("ls of* | wc -l"), count);
}

}  // namespace
}  // namespace escrow::test
