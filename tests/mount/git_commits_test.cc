// Commits that are made with the git of a session and stay commits of their own, played by the git of this machine.
#include <fstream>

#include "tests/mount/cli_fixture.h"
#include "tests/mount/run_fixture.h"

namespace escrow::test {
namespace {

class GitCommits : public EscrowRun {
 protected:
  ProcessResult keep(const std::string& script, std::vector<std::string> options = {}) {
    options.emplace_back("--git-commits");
    options.emplace_back("keep");
    before_ = head();
    ProcessResult result = run(options, "set -e\n" + script);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(git("ls-tree -r --name-only main").find(".git/"), std::string::npos);
    EXPECT_EQ(git("fsck --full --strict"), "");
    return result;
  }
  // The subjects of what landed, oldest first, each on a line.
  std::string landed() const { return git("log --reverse --format=%s " + before_ + "..main"); }
  std::string changed(const std::string& commit) const { return git("diff --name-only " + commit + "~1 " + commit); }
  bool was_squashed(const ProcessResult& result) const {
    return result.err.find("the commits made inside became one: ") != std::string::npos;
  }
  // Commits by hand what another did, while the run is at it.
  std::string by_another(const std::string& script) const {
    return "(unset GIT_DIR; git -c safe.directory='*' clone -q " + repository_ + " $OUT/other; cd $OUT/other\n" +
           script + "; git add -A; git -c user.name=x -c user.email=y commit -qm other\n"
           "git -c safe.directory='*' push -q)\n";
  }

  std::string before_;
};

TEST_F(GitCommits, EachLandsAsACommitOfItsOwnWithTheAuditRecord) {
  const ProcessResult result =
      keep("echo 1 > one; git add .; git commit -qm 'First step' -m 'Why it is taken.'\n"
           "echo 2 > two; git rm -q a.txt; chmod +x dir/b.txt; git add .; git commit -qm 'Second step'");
  EXPECT_FALSE(was_squashed(result)) << result.err;
  EXPECT_EQ(landed(), "First step\nSecond step");
  EXPECT_EQ(git("rev-parse main~2"), before_);
  EXPECT_EQ(changed("main~1"), "one");
  EXPECT_EQ(changed("main"), "a.txt\ndir/b.txt\ntwo");
  EXPECT_EQ(git("log -1 --format=%b main~1").find("Why it is taken.\n\nEscrow-Session: "), 0u);
  for (const char* commit : {"main", "main~1"}) {
    const std::string trailers = git(std::string("log -1 --format='%(trailers:only)' ") + commit);
    EXPECT_NE(trailers.find("Escrow-Exit-Code: 0"), std::string::npos) << trailers;
    EXPECT_NE(trailers.find("Escrow-Base: " + before_), std::string::npos) << trailers;
  }
  EXPECT_EQ(git("log -1 --format=%an main~1"), git("log -1 --format=%cn main"));
  EXPECT_EQ(escrow({"log"}).out.find("(claimed)"), std::string::npos);
}

TEST_F(GitCommits, ALogMarksTheAuditRecordOfACommitThatNoSessionMade) {
  keep("echo 1 > one; git add .; git commit -qm first; echo 2 > one; git commit -qam second");
  const std::string real = escrow({"log"}).out;
  EXPECT_EQ(real.find("(claimed)"), std::string::npos) << real;
  git("update-ref refs/heads/main $(git --git-dir='" + repository_ + "' -c user.name=m -c user.email=m commit-tree "
      "main^{tree} -p main -m \"$(git --git-dir='" + repository_ + "' log -1 --format=%B main)\")");
  const std::string forged = escrow({"log"}).out;
  EXPECT_NE(forged.find("  session (claimed): "), std::string::npos) << forged;
  EXPECT_NE(forged.find("  committer (claimed): "), std::string::npos) << forged;
  EXPECT_TRUE(forged.ends_with(real)) << forged;
  const std::string json = escrow({"log", "--json"}).out;
  EXPECT_EQ(json.find("\"claimed\":true"), json.rfind("\"claimed\":true")) << json;
  EXPECT_LT(json.find("\"claimed\":true"), json.find("\"claimed\":false")) << json;
}

TEST_F(GitCommits, WhatNoneOfThemHasIsOneMore) {
  keep("echo 1 > one; git add .; git commit -qm first; echo 2 > two");
  EXPECT_EQ(changed("main"), "two");
  EXPECT_EQ(git("log -1 --format=%s main~1"), "first");
  keep("echo 3 > one; git commit -qam second; echo 4 > two", {"-m", "the rest"});
  EXPECT_EQ(landed(), "second\nthe rest");
  keep("echo 5 > one; git commit -qam third; git checkout -q HEAD~1 -- one; git commit -qam back");
  EXPECT_EQ(git("rev-parse main"), before_) << "a session that changes nothing commits nothing";
}

TEST_F(GitCommits, OnABranchThatOthersMovedEachIsMadeOnItsHead) {
  const ProcessResult result = keep(by_another("echo o > others.txt") +
                                    "echo 1 > one; git add .; git commit -qm first\n"
                                    "echo 2 > one; git commit -qam second; rm -rf $OUT/other");
  EXPECT_FALSE(was_squashed(result)) << result.err;
  EXPECT_EQ(landed(), "other\nfirst\nsecond");
  EXPECT_EQ(content("others.txt"), "o");
  EXPECT_EQ(changed("main~1"), "one");
}

TEST_F(GitCommits, OneThatConflictsByItselfMakesThemOneAndItIsSaid) {
  const ProcessResult result = keep(by_another("echo o > a.txt") +
                                    "cp a.txt $OUT/was; echo 1 > a.txt; git commit -qam 'tried'\n"
                                    "cp $OUT/was a.txt; echo 2 > one; git add .; git commit -qm 'undone'");
  EXPECT_TRUE(was_squashed(result)) << result.err;
  EXPECT_NE(result.err.find("'tried' by itself conflicts with the branch in a.txt"), std::string::npos) << result.err;
  EXPECT_EQ(landed(), "other\ntried");
  EXPECT_EQ(content("a.txt"), "o");
}

TEST_F(GitCommits, MergesAndWhatWasPackedBecomeOneAndItIsSaid) {
  const ProcessResult merged =
      keep("git checkout -qb side; echo 1 > one; git add .; git commit -qm side; git checkout -q main\n"
           "echo 2 > two; git add .; git commit -qm main; git merge -q -m merged side");
  EXPECT_TRUE(was_squashed(merged)) << merged.err;
  EXPECT_EQ(git("rev-parse main~1"), before_);
  const ProcessResult packed = keep("echo 3 > one; git commit -qam packed; git gc -q --prune=now");
  EXPECT_TRUE(was_squashed(packed)) << packed.err;
  EXPECT_EQ(git("rev-parse main~1"), before_);
  EXPECT_EQ(content("one"), "3");
}

// The session's git cannot bring in what its own commit leaves out.
TEST_F(GitCommits, WhatTheSessionCouldNotCommitIsInNoneOfThem) {
  std::ofstream(file("injected")) << "injected";
  const ProcessResult result =
      keep("echo '*.log' > .gitignore; echo l > x.log; echo s > secret.key; echo 1 > one\n"
           "mkdir deep; echo 1 > deep/y.log\n"
           "git add -f .; git commit -qm all; git rm -qf --cached secret.key; git commit -qm less\n"
           // A tree that git fsck refuses: a .git in it, a submodule, a link .gitmodules, a directory .gitattributes.
           "blob=$(git hash-object -w one)\n"
           "tree=$( (git ls-tree HEAD; printf '100644 blob %s\\t.GIT\\n160000 commit %s\\tsub\\n120000 blob %s\\t"
           ".gitmodules\\n040000 tree %s\\t.gitattributes\\n' $blob $(git rev-parse HEAD) $blob "
           "$(printf '100644 blob %s\\tx\\n' $blob | git mktree)) | git mktree)\n"
           "git update-ref HEAD $(echo odd | git commit-tree $tree -p HEAD)",
           {"--exclude", "*.key", "--inject", "vendor=" + file("injected")});
  EXPECT_EQ(git("log --name-only --format= " + before_ + "..main"), ".gitignore\none") << result.err;
  EXPECT_EQ(landed(), "all");
}

// Bytes that are not those of their id are no object. The damaged one was never a file of the session: those Escrow may
// have stored by itself, and then has no need of it.
TEST_F(GitCommits, AnObjectWithOtherBytesMakesThemOneAndItIsSaid) {
  for (const std::string& damage : std::vector<std::string>{
           "zlib.compress(b'blob 2\\0x\\n')", "zlib.compress(b'blob 900000000000000\\0x\\n')", "b'no'",
           "zlib.compress(b'tree 0\\0')", "zlib.compress(b'blob 1\\0x\\n')"}) {
    const ProcessResult result =
        keep("id=$(git log --format=%H | git hash-object -w --stdin)\n"
             "git update-index --add --cacheinfo 100644,$id,one; git commit -qm first\n"
             "git log --format=%h > one; git add one; git commit -qm second\n"
             "python3 -c \"import os,zlib,sys; p='.git/objects/'+sys.argv[1][:2]+'/'+sys.argv[1][2:]; os.remove(p); "
             "open(p,'wb').write(" + damage + ")\" $id");
    EXPECT_TRUE(was_squashed(result)) << damage << result.err;
    EXPECT_EQ(git("rev-parse main~1"), before_);
    EXPECT_EQ(git("log -1 --format=%s"), "first");
  }
}

TEST_F(GitCommits, TreesWithoutEndMakeThemOneAndItIsSaid) {
  const ProcessResult result =
      keep("tree=$(printf '100644 blob %s\\tx\\n' $(git hash-object -w a.txt) | git mktree)\n"
           "for i in $(seq 20); do tree=$(for n in 0 1 2 3 4 5 6 7 8 9; do "
           "printf '040000 tree %s\\t%s\\n' $tree $n; done "
           "| git mktree); done\n"
           "git update-ref HEAD $(echo bomb | git commit-tree $tree -p HEAD); echo 1 > one");
  EXPECT_TRUE(was_squashed(result)) << result.err;
  EXPECT_EQ(changed("main"), "one");
}

TEST_F(GitCommits, AResultThatAwaitsApprovalIsOneAndItIsSaid) {
  const ProcessResult sealed = run({"--git-commits", "keep", "--require-approval"},
                                   "echo 1 > one; git add .; git commit -qm one; echo 2 > one; git commit -qam two");
  EXPECT_EQ(sealed.status, 123) << sealed.err;
  EXPECT_TRUE(was_squashed(sealed)) << sealed.err;
}

class GitCommitsOfAMount : public EscrowCommands {};

TEST_F(GitCommitsOfAMount, LandOneByOneAlsoWhenItWasMountedAgainAndUpdated) {
  const std::string before = git("rev-parse main");
  const std::string id = mount({"--git-commits", "keep"});
  const auto shell_in = [&](const std::string& script) {
    const ProcessResult result = run_process({"sh", "-ec", "cd " + mountpoint_ + "\n" + script});
    EXPECT_EQ(result.status, 0) << result.err;
  };
  shell_in("echo 1 > one; git add .; git commit -qm first");
  EXPECT_EQ(escrow({"run", "--", "sh", "-c", "echo o > others.txt"}).status, 0);
  done({"update", id});
  unmount_outside(id);
  EXPECT_EQ(mount({"--session", id}), id);
  shell_in("echo 2 > two; git add one two; git commit -qm second");
  const std::string said = done({"commit", id});
  EXPECT_EQ(said.find("became one"), std::string::npos) << said;
  EXPECT_EQ(git("log --reverse --format=%s " + before + "..main | tail -2"), "first\nsecond");
  EXPECT_EQ(git("show main:others.txt"), "o");
  EXPECT_EQ(git("fsck --full --strict"), "");
}

}  // namespace
}  // namespace escrow::test
