// `--with-changes`: sessions that begin with what a work tree has uncommitted.

#include <string>
#include <vector>

#include "tests/work/project_fixture.h"

namespace escrow::test {
namespace {

// Every file and symbolic link of the current directory, with what matters to git.
constexpr const char* kList =
    "find . -name .git -prune -o \\( -type f -o -type l \\) -printf '%P %y %l\\n' | LC_ALL=C sort | "
    "while read -r f rest; do if test -L \"$f\"; then echo \"$f $rest\"; else "
    "test -x \"$f\" && x=x || x=-; echo \"$f $rest $x $(git hash-object --no-filters \"$f\")\"; fi; done";

class WithChanges : public Project {
 protected:
  void SetUp() override {
    set_up("mkdir -p src doc gone turned && for f in src/a.c src/b.c src/kept.c doc/x gone/1 gone/2 turned/1 plain; "
           "do echo 1 > $f; done && ln -s src/a.c link && echo '*.o' > .gitignore");
  }

  // Of every kind; nothing of it is committed.
  void change() const {
    in_project("echo mine > src/a.c; echo staged > src/b.c; git add src/b.c; chmod +x doc/x; rm -r gone; "
               "rm -r turned behind; echo file > turned; ln -s doc behind; "
               "rm plain; mkdir plain; echo in > plain/f; ln -sfn doc/x link; "
               "ln -s nowhere dangling; mkdir -p new/deep; echo n > new/deep/f; echo o > src/a.o; "
               "printf '\\001\\000' > 'b in'; : > empty; head -c 3000000 /dev/zero | tr '\\0' z > large");
  }

  ProcessResult run(const std::string& script, std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"run", "--with-changes"});
    options.insert(options.end(), {"--", "sh", "-c", script});
    return escrow(options);
  }
  // All of the work tree, its index and its HEAD.
  std::string state() const {
    return in_project(kList) + git("status --porcelain=v2 --branch -uall") + git("ls-files --stage");
  }
};

TEST_F(WithChanges, TheSessionBeginsAsTheWorkTreeIsAndNothingInThatIsTouched) {
  change();
  const std::string before = state();
  const std::string wanted = in_project("rm src/a.o; " + std::string(kList) + "; echo o > src/a.o");
  const ProcessResult done = run(std::string(kList) + "; exit 3", {"--no-git"});
  EXPECT_EQ(done.status, 3) << done.err;
  std::string seen = done.out;
  if (seen.ends_with('\n')) seen.pop_back();
  EXPECT_EQ(seen, wanted);
  EXPECT_TRUE(has(done.err, " of " + project_ + " are not committed, and in the session as found there")) << done.err;
  EXPECT_EQ(state(), before) << "a failed command leaves the work tree as it was";
}

TEST_F(WithChanges, ACommitHasThemAndTheWorkTreeFollows) {
  change();
  const std::string expected = in_project("export GIT_INDEX_FILE=../index && cp .git/index ../index && git add -A && "
                                          "git write-tree");
  const ProcessResult done = run("test -e new/deep/f && test ! -e src/a.o");
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(git("rev-parse 'HEAD^{tree}'"), expected) << "what `git add -A` would have made";
  EXPECT_EQ(git("rev-list --count HEAD"), "2");
  EXPECT_EQ(git("status --porcelain"), "") << "git knows all of it now";
  EXPECT_EQ(in_project("cat src/a.c src/a.o new/deep/f turned plain/f; readlink link"), "mine\no\nn\nfile\nin\ndoc/x");
  // What the command makes beside them comes along.
  in_project("echo again > src/a.c");
  ASSERT_EQ(run("cp src/a.c src/copy.c; echo 2 > src/kept.c").status, 0);
  EXPECT_EQ(in_project("cat src/copy.c src/kept.c") + git("status --porcelain"), "again\n2");
}

TEST_F(WithChanges, AFileThatTheSessionChangedFurtherIsInTheWayAndNothingIsLost) {
  in_project("echo mine > src/a.c; echo new > untracked");
  const std::string before = state();
  const ProcessResult done = run("echo more >> src/a.c; echo more >> untracked; echo 2 > src/kept.c");
  EXPECT_EQ(done.status, 125) << done.err;
  EXPECT_TRUE(has(done.err, "is in the way: src/a.c, untracked;")) << done.err;
  EXPECT_EQ(state(), before);
  git("stash -q -u");
  const std::string id = in_project("basename $(ls -d .git/escrow/sessions/*)");
  const ProcessResult committed = escrow({"commit", id});
  ASSERT_EQ(committed.status, 0) << committed.err;
  EXPECT_EQ(in_project("cat src/a.c untracked src/kept.c"), "mine\nmore\nnew\nmore\n2");
}

TEST_F(WithChanges, AKilledCommitLosesNothingOfThem) {
  for (int trial = 0; trial < 6; ++trial) {
    const std::string value = std::to_string(trial + 2);
    in_project("mkdir -p many ../mnt; for n in $(seq 100); do echo " + value + " > many/f$n; done; echo " + value +
               " > src/a.c");
    const ProcessResult mounted = escrow({"mount", "../mnt", "--with-changes"});
    ASSERT_EQ(mounted.status, 0) << mounted.err;
    const std::string id = mounted.out.substr(0, 16);
    in_project("echo " + value + " > ../mnt/src/kept.c; umount ../mnt");
    in_project("timeout -s KILL 0.0" + std::to_string(trial + 3) + " '" ESCROW_BINARY "' commit " + id +
               " > /dev/null 2>&1 || true");
    wait_for_the_turn();
    EXPECT_EQ(escrow({"sessions"}).status, 0);
    EXPECT_EQ(in_project("cat many/* src/a.c | sort -u"), value) << "trial " << trial;
    if (!status().empty()) {
      const ProcessResult again = escrow({"commit", id});
      EXPECT_EQ(again.status, 0) << again.err;
    }
    EXPECT_EQ(in_project("cat many/* src/a.c src/kept.c | sort -u") + status(), value) << "trial " << trial;
  }
}

TEST_F(WithChanges, NothingIsFollowedOutOfTheWorkTree) {
  in_project("mkdir ../outside && echo secret > ../outside/x && rm -r doc && ln -s ../outside doc; "
             "git init -q nested && echo n > nested/f");
  const ProcessResult done = run("ls -d doc/x nested; readlink doc; exit 1");
  EXPECT_EQ(done.status, 1);
  EXPECT_TRUE(has(done.out, "../outside\n")) << done.out;
  EXPECT_FALSE(has(done.out, "nested")) << done.out;
  EXPECT_TRUE(has(done.err, "1 path outside of the session, or of another mount or repository, is not: nested/"))
      << done.err;
}

TEST_F(WithChanges, AMountBeginsWithThemToo) {
  in_project("echo mine > src/a.c; echo u > src/new; echo other > doc/x; mkdir ../mnt");
  const ProcessResult mounted = escrow({"mount", "../mnt", "--with-changes", "--path-prefix", "src"});
  ASSERT_EQ(mounted.status, 0) << mounted.err;
  EXPECT_TRUE(has(mounted.err, "2 paths of " + project_ + " are not committed, and in the session")) << mounted.err;
  EXPECT_TRUE(has(mounted.err, "is not: doc/x")) << mounted.err;
  EXPECT_EQ(in_project("cat ../mnt/a.c ../mnt/new"), "mine\nu");
  const ProcessResult committed = escrow({"commit", mounted.out.substr(0, 16)});
  EXPECT_EQ(committed.status, 0) << committed.err;
  EXPECT_EQ(git("status --porcelain"), " M doc/x");
}

TEST_F(WithChanges, WhereItCannotBeItIsRefusedAndNoSessionIsLeft) {
  in_project("echo mine > src/a.c; git branch other; git commit -q --allow-empty -m second; mkdir ../mnt");
  ProcessResult refused = run("true", {"--branch", "other"});
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(has(refused.err, "is at another commit, on 'main'")) << refused.err;
  in_project("git clone -q --bare . ../bare.git");
  ASSERT_EQ(escrow({"--repo", "../bare.git", "init"}).status, 0);
  refused = run_escrow({"--repo", directory_.path() + "/bare.git", "run", "--with-changes", "--", "true"}, here());
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(has(refused.err, "neither the current directory nor --repo is in one")) << refused.err;
  refused = run("true", {"--read-only"});
  EXPECT_TRUE(has(refused.err, "--with-changes and --read-only exclude each other")) << refused.err;
  refused = escrow({"mount", "../mnt", "--with-changes", "--session", "0123456789abcdef"});
  EXPECT_TRUE(has(refused.err, "--with-changes cannot be given with --session")) << refused.err;
  if (::geteuid() != 0) {
    in_project("chmod 0 src/a.c");
    refused = run("true");
    EXPECT_TRUE(has(refused.err, "cannot take \"src/a.c\" of the work tree into the session")) << refused.err;
  }
  EXPECT_EQ(in_project("ls .git/escrow/sessions"), "");
  EXPECT_EQ(git("rev-list --count HEAD"), "2");
}

}  // namespace
}  // namespace escrow::test
