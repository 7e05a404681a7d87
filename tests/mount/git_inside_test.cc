// The git of a session, played by the git of this machine.
#include <sys/xattr.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/mount/cli_fixture.h"
#include "tests/mount/run_fixture.h"

namespace escrow::test {
namespace {

class GitInside : public EscrowRun {
 protected:
  std::string message() const { return git("log -1 --format=%B main"); }
  std::string user_part() const {
    const std::string all = message();
    return all.substr(0, all.find("\n\nEscrow-Session: "));
  }
  // `script` with the options of a run whose commit is expected to land.
  ProcessResult land(const std::string& script, std::vector<std::string> options = {}) {
    options.emplace_back("--git");
    ProcessResult result = run(options, "set -e\n" + script);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(git("ls-tree -r --name-only main").find(".git"), std::string::npos);
    return result;
  }
};

TEST_F(GitInside, StatusKnowsWithoutReadingAFileThatNothingHasChanged) {
  // Of files that are as young as its index, by the second, git reads the contents (gitformat-index(5), "racy git").
  const std::time_t imported = std::time(nullptr);
  while (std::time(nullptr) == imported) std::this_thread::yield();
  const ProcessResult result = land(
      "test -z \"$(git status --porcelain)\"; stat -c %i .git/index; git status --porcelain; git diff --quiet HEAD\n"
      "git add -A; stat -c %i .git/index; git rev-parse HEAD; git symbolic-ref HEAD; git fsck --strict --full 2>&1");
  std::istringstream lines(result.out);
  std::string before, after, at, branch, rest;
  for (std::string* line : {&before, &after, &at, &branch}) std::getline(lines, *line);
  EXPECT_EQ(before, after) << "git wrote its index anew: what it said of a file was not so";
  EXPECT_EQ(at, head());
  EXPECT_EQ(branch, "refs/heads/main");
  EXPECT_FALSE(std::getline(lines, rest)) << rest;
}

TEST_F(GitInside, WhatItsCommandsSayIsTrueOfTheSession) {
  const ProcessResult result = land(
      "echo more >> a.txt; echo new > new.txt; rm dir/b.txt; chmod +x dir/sub/c.txt; git status --porcelain\n"
      "git diff --stat | tail -1; git blame -s a.txt | tail -1 | cut -c1-8; git stash -qu; git status --porcelain\n"
      "test ! -e new.txt; git stash pop -q; git status --porcelain | wc -l; git show HEAD:dir/b.txt");
  EXPECT_EQ(result.out, " M a.txt\n D dir/b.txt\n M dir/sub/c.txt\n?? new.txt\n"
                        " 3 files changed, 1 insertion(+), 1 deletion(-)\n00000000\n4\nb\n");
  EXPECT_EQ(content("new.txt"), "new");
}

// As rsync --times leaves it, or an edit in the second of the commit.
TEST_F(GitInside, AChangeThatKeepsSizeAndTimeIsSeen) {
  const ProcessResult result = land("size=$(stat -c %s a.txt); head -c $size /dev/zero | tr '\\0' n > a.txt\n"
                                    "touch -r dir/sub/c.txt a.txt; git status --porcelain; git add -A\n"
                                    "git diff --cached --name-only");
  EXPECT_EQ(result.out, " M a.txt\na.txt\n");
}

// All files of one commit have one time.
TEST_F(GitInside, AFileThatTookTheNameTimeAndSizeOfAnotherIsSeen) {
  run("mkdir x y; echo 1 > x/f; echo 2 > y/f; echo 3 > p; echo 4 > q");
  const std::time_t committed = std::time(nullptr);
  while (std::time(nullptr) == committed) std::this_thread::yield();
  const std::string swap = "mv x t; mv y x; mv t y", looked = "git status --porcelain\n";
  const auto sees = [&](const std::string& change, const std::string& seen) {
    const ProcessResult result = run(change + "\ngit status --porcelain; exit 1");
    EXPECT_EQ(result.out, seen) << change << "\n" << result.err;
  };
  sees(swap, " M x/f\n M y/f\n");
  sees("rm -r x; mv y x", " M x/f\n D y/f\n");
  sees("mv x y/x; mv y/x t; mv t x", "");
  sees(looked + swap, " M x/f\n M y/f\n");
  sees(looked + "mv q p", " M p\n D q\n");
  for (const char* change : {"cp -p q p", "ln -f q p", "echo 4 > p; touch -r q p", "rm p; cp -p q p"})
    sees(looked + change, " M p\n");
}

TEST_F(GitInside, ANameThatNoFileSystemHasTakesNothingElseAlong) {
  const std::string name(300, 'n'), tree = git("rev-parse main^{tree}");
  const std::string with = run_process({"sh", "-c", "cd " + repository_ + " && { git cat-file -p " + tree +
                                        "; printf '100644 blob %s\\t" + name + "\\n' $(git rev-parse main:a.txt); } |"
                                        " git mktree"}).out;
  const std::string commit = git("commit-tree -m long -p main " + with.substr(0, 40));
  git("update-ref refs/heads/main " + commit);
  const ProcessResult result = run("echo more >> a.txt; git status --porcelain; exit 1");
  EXPECT_EQ(result.out, " M a.txt\n") << result.err;
}

TEST_F(GitInside, TheMessagesOfItsCommitsAreTheMessageOfTheCommit) {
  const std::string before = head();
  const ProcessResult result = land("echo 1 > one; git add .; git commit -qm 'First step' -m 'Why it is taken.'\n"
                                    "echo 2 > two; git add .; git commit -qm 'Second step'; echo 3 > three");
  EXPECT_EQ(result.err.find("left out"), std::string::npos) << result.err;
  EXPECT_EQ(user_part(), "First step\n\nWhy it is taken.\n\nSecond step");
  EXPECT_EQ(git("rev-parse main~1"), before);
  EXPECT_EQ(git("diff --name-only main~1 main"), "one\nthree\ntwo");
  EXPECT_EQ(git("fsck --full --strict"), "");
}

TEST_F(GitInside, AMessageThatWasGivenIsTheMessage) {
  land("echo 1 > one; git add .; git commit -qm inside", {"-m", "given"});
  EXPECT_EQ(user_part(), "given");
}

TEST_F(GitInside, WhereverHeadIsItsCommitsCount) {
  land("git checkout -qb topic/x; echo 1 > one; git add .; git commit -qm 'on a branch'; git pack-refs --all");
  EXPECT_EQ(user_part(), "on a branch");
  land("git checkout -q --detach; echo 2 > one; git commit -qam detached; git commit -q --amend -m amended");
  EXPECT_EQ(user_part(), "amended");
}

TEST_F(GitInside, WhatIsNotWrittenByGitSaysNothing) {
  const std::vector<std::string> scripts = {
      "rm -rf .git; git init -q; git add .; git -c user.name=x -c user.email=y commit -qm unrelated",
      "rm -rf .git; ln -s /etc .git",
      "rm -rf .git; echo 'gitdir: /etc' > .git",
      "echo 'ref: refs/../../../../etc/passwd' > .git/HEAD",
      "echo 'ref: HEAD' > .git/HEAD",
      "printf '%040d' 7 > .git/HEAD; mkdir -p .git/objects/00; echo garbage > .git/objects/00/$(printf '%038d' 7)",
      "rm .git/HEAD; mkfifo .git/HEAD",
      // Two commits that name each other.
      "python3 -c 'import os, zlib\n"
      "for a, b in ((\"1\" * 40, \"2\" * 40), (\"2\" * 40, \"1\" * 40)):\n"
      "  os.makedirs(\".git/objects/\" + a[:2])\n"
      "  body = f\"tree {a}\\nparent {b}\\n\\nround\".encode()\n"
      "  open(f\".git/objects/{a[:2]}/{a[2:]}\", \"wb\").write(zlib.compress(b\"commit %d\\0\" % len(body) + body))\n"
      "open(\".git/HEAD\", \"w\").write(\"1\" * 40 + \"\\n\")'",
  };
  int number = 0;
  for (const std::string& script : scripts) {
    land(script + "\necho " + std::to_string(++number) + " > number");
    EXPECT_NE(user_part().find(" in session "), std::string::npos) << script << "\n" << message();
  }
}

TEST_F(GitInside, AMessageWithControlCharactersLosesThem) {
  land("echo 1 > one; git add .; printf 'bell \\a here\\r\\n\\nbody\\033[31m' | git commit -q --cleanup=verbatim -F -");
  EXPECT_EQ(user_part(), "bell   here\n\nbody [31m");
}

TEST_F(GitInside, TheObjectsOfTheRepositoryAreBorrowedAndOnlyRead) {
  const std::string before = git("count-objects -v");
  const ProcessResult failed =
      run({"--git"}, "echo 1 > one; git add .; git commit -qm one; git gc -q --prune=now; exit 1");
  EXPECT_EQ(failed.status, 1) << failed.err;
  EXPECT_EQ(git("count-objects -v"), before);
}

TEST_F(GitInside, AConfinedCommandHasItToo) {
  const ProcessResult result = land("git log --format=%s; echo 1 > one; git add .; git commit -qm confined\n"
                                    "touch /run/escrow/objects/x 2>/dev/null && echo written || true",
                                    {"--confine"});
  EXPECT_EQ(result.out, git("log --format=%s main~1") + "\n");
  EXPECT_EQ(user_part(), "confined");
}

TEST_F(GitInside, ABranchThatDoesNotExistYetBeginsInIt) {
  ASSERT_EQ(run_process({"git", "init", "-q", "--bare", "-b", "main", file("empty.git")}).status, 0);
  repository_ = file("empty.git");
  ASSERT_EQ(escrow({"init"}).status, 0);
  land("git status | head -3 | tail -1; echo 1 > one; git add .; git commit -qm 'begins' || true");
  EXPECT_EQ(git("ls-tree --name-only main"), "one");
}

TEST_F(GitInside, TheResultThatAwaitsApprovalHasTheMessage) {
  const ProcessResult sealed = run({"--git", "--require-approval", "--result", file("result.json")},
                                   "echo 1 > one; git add .; git commit -qm 'please look'");
  ASSERT_EQ(sealed.status, 123) << sealed.err;
  const std::string json = read("result.json");
  const std::size_t at = json.find("\"session\":\"");
  ASSERT_NE(at, std::string::npos) << json;
  ASSERT_EQ(escrow({"approve", json.substr(at + 11, 16)}).status, 0);
  EXPECT_EQ(user_part(), "please look");
}

TEST_F(GitInside, WhatAPolicyOrAPrefixHidesItWouldShow) {
  std::ofstream(file("policy.json")) << R"({"default": "allow", "rules": [{"effect": "deny", "actions": ["read"],)"
                                        R"( "paths": ["/dir/**"]}]})";
  for (const std::vector<std::string>& hides :
       std::vector<std::vector<std::string>>{{"--path-prefix", "dir"}, {"--policy", file("policy.json")}}) {
    std::vector<std::string> options = hides;
    options.emplace_back("--git");
    const ProcessResult result = run(options, "true");
    EXPECT_EQ(result.status, 125);
    EXPECT_NE(result.err.find("--git and " + hides.front() + " exclude each other"), std::string::npos) << result.err;
  }
}

TEST_F(GitInside, IsThereUnlessItIsNotWanted) {
  const ProcessResult usual = run({}, "git status --porcelain && git log --format=%s -1; ls -A | grep -cx .git; true");
  EXPECT_EQ(usual.out, git("log -1 --format=%s main") + "\n0\n") << usual.err;
  const std::vector<std::vector<std::string>> without = {
      {"--no-git"}, {"--confine"}, {"--path-prefix", "dir"}, {"--limit-files", "100"}};
  for (const std::vector<std::string>& options : without) {
    const ProcessResult none = run(options, "test ! -e .git && echo none");
    EXPECT_EQ(none.out, "none\n") << options.front() << none.err;
  }
  EXPECT_NE(run({"--git", "--no-git"}, "true").err.find("--no-git"), std::string::npos);
}

TEST_F(GitInside, WhatASessionRemovesDoesNotComeBack) {
  const ProcessResult result = run({}, "git status --porcelain; rm -rf .git; test ! -e .git && echo gone\n"
                                       "mkdir .git && rmdir .git && test ! -e .git && echo gone; echo 1 > one");
  EXPECT_EQ(result.out, "gone\ngone\n") << result.err;
  EXPECT_EQ(git("diff --name-only main~1 main"), "one");
}

class GitInsideAMount : public EscrowCommands {
 protected:
  std::string in_session(const std::string& arguments) const {
    const ProcessResult result = run_process({"sh", "-c", "cd " + mountpoint_ + " && git " + arguments});
    EXPECT_EQ(result.status, 0) << arguments << ": " << result.err;
    return result.out;
  }
};

TEST_F(GitInsideAMount, APersonCommitsInItAndThenIt) {
  const std::string id = mount({"--git"});
  EXPECT_EQ(in_session("status --porcelain"), "");
  write(in_mount("new.txt"), "new");
  in_session("add .");
  in_session("commit -qm 'By a person'");
  EXPECT_EQ(status_of(id, "state"), "open");
  EXPECT_EQ(escrow({"diff", id, "--name-status"}).out, "A\tnew.txt\n");
  const std::string said = done({"commit", id});
  EXPECT_EQ(said.find("left out"), std::string::npos) << said;
  EXPECT_EQ(git("log -1 --format=%s main"), "By a person");
  EXPECT_EQ(git("ls-tree -r --name-only main").find(".git"), std::string::npos);
}

// Its git finds the other session's objects in the repository, and stores nothing.
TEST_F(GitInsideAMount, ItKeepsWhatItFoundInAResultThatIsRejectedAndCollected) {
  const ProcessResult sealed =
      escrow({"run", "--require-approval", "--", "sh", "-c", "mkdir new; echo both-wrote-this > new/n.txt"});
  EXPECT_EQ(sealed.status, 123) << sealed.err;
  const std::string rejected = sealed.err.substr(sealed.err.find("session ") + 8, 16);
  const std::string id = mount({"--git"});
  std::filesystem::create_directory(in_mount("new"));
  write(in_mount("new/n.txt"), "both-wrote-this\n");
  in_session("add .");
  in_session("commit -qm 'By a person'");
  done({"reject", rejected});
  git("config gc.pruneExpire now");
  const std::string collected = done({"gc"});
  EXPECT_NE(collected.find("session " + id + " has been open since then"), std::string::npos) << collected;
  EXPECT_EQ(in_session("fsck --full --strict --no-dangling"), "");
  EXPECT_EQ(in_session("show HEAD:new/n.txt"), "both-wrote-this\n");
  done({"commit", id});
  EXPECT_EQ(git("log -1 --format=%s main"), "By a person");
  EXPECT_EQ(git("fsck --full --strict --no-dangling"), "");
}

TEST_F(GitInsideAMount, ItIsThereWhenTheSessionIsMountedAgainAndCommitsWithoutAMount) {
  const std::string id = mount({"--git"});
  write(in_mount("new.txt"), "new");
  in_session("add .");
  in_session("commit -qm 'Kept'");
  unmount_outside(id);
  EXPECT_EQ(mount({"--session", id}), id);
  EXPECT_EQ(in_session("diff-files --name-only"), "") << "the index has other times or inodes";
  EXPECT_EQ(in_session("status --porcelain"), "");
  EXPECT_EQ(in_session("log -1 --format=%s"), "Kept\n");
  done({"unmount", mountpoint_});
  done({"commit", id});
  EXPECT_EQ(git("log -1 --format=%s main"), "Kept");
}

TEST_F(GitInsideAMount, ARepositoryOfTheSameUserIsThereWhenItIsMountedAgain) {
  const std::string id = mount();
  in_session("init -q dir");
  in_session("-C dir -c user.name=x -c user.email=y commit -q --allow-empty -m 'Of a person'");
  unmount_outside(id);
  EXPECT_EQ(escrow({"mount", mountpoint_, "--session", id}).err, "");
  EXPECT_EQ(in_session("-C dir log --format=%s"), "Of a person\n");
  done({"savepoint", "create", id, "before"});
  std::filesystem::remove_all(in_mount("dir/.git"));
  done({"savepoint", "restore", id, "before"});
  EXPECT_EQ(in_session("-C dir log --format=%s"), "Of a person\n");
  std::filesystem::create_directory(file("fork"));
  done({"fork", id, file("fork")});
  EXPECT_EQ(run_process({"git", "-C", file("fork") + "/dir", "log", "--format=%s"}).out, "Of a person\n");
  done({"rollback", id, "--discard-forks"});
}

TEST_F(GitInsideAMount, OneInACopyIsShownAtTheOpeningAndThenOnlyByName) {
  std::filesystem::create_directory(file("host"));
  run_process({"git", "init", "-q", file("host") + "/brought"});
  const std::string id = mount({"--inject", "work=" + file("host") + ",mode=overlay"});
  EXPECT_TRUE(std::filesystem::exists(in_mount("work/brought/.git/HEAD")));
  in_session("init -q work");
  EXPECT_TRUE(std::filesystem::exists(in_mount("work/.git/HEAD")));
  unmount_outside(id);
  const auto mounted = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"mount", mountpoint_, "--session", id});
    const ProcessResult result = escrow(options);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.err;
  };
  EXPECT_NE(mounted({}).find("hidden: work/.git, work/brought/.git of session " + id), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(in_mount("work/.git")));
  EXPECT_TRUE(std::filesystem::is_empty(in_mount("work/brought")));
  unmount_outside(id);
  EXPECT_NE(mounted({"--show-git", "work/.git"}).find("hidden: work/brought/.git of session"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(in_mount("work/.git/HEAD")));
}

TEST_F(GitInsideAMount, AMountTableHasNoEntryUnderANameOfGit) {
  std::filesystem::create_directory(file("host"));
  for (const char* path : {".git", "dir/.GIT/hooks", "git~1"}) {
    refused(2, "is a name of git's own", {"mount", mountpoint_, "--inject", std::string(path) + "=" + file("host")});
  }
}

// A mark that a program can make is not one.
TEST_F(GitInsideAMount, OneThatOnlyLooksLikeEscrowsIsNamedAmongWhatIsLeftOut) {
  const std::string id = mount({"--no-git", "--xattr", "user"});
  std::filesystem::create_directory(in_mount(".git"));
  write(in_mount(".git/escrow-session"), id + "\n");
  EXPECT_EQ(::listxattr(in_mount(".git").c_str(), nullptr, 0), 0);
  for (const char* mark : {"escrow.git", "escrow.git_maker"}) {
    EXPECT_NE(::setxattr(in_mount(".git").c_str(), mark, id.data(), id.size(), 0), 0);
    EXPECT_NE(::removexattr(in_mount(".git").c_str(), mark), 0);
    EXPECT_LT(::getxattr(in_mount(".git").c_str(), mark, nullptr, 0), 0);
  }
  EXPECT_NE(done({"status", id}).find(".git"), std::string::npos);
  unmount_outside(id);
  const std::string own = mount({"--xattr", "user"});
  in_session("status");
  EXPECT_EQ(::listxattr(in_mount(".git").c_str(), nullptr, 0), 0);
  EXPECT_EQ(done({"status", own}).find(".git"), std::string::npos);
}

// Nothing is staged for it; what is there later is a process's that looked for it.
TEST_F(GitInsideAMount, ASessionInWhichNobodyLooksForItHasNothingOfIt) {
  const std::string id = mount();
  const auto staged = [&] { return done({"status", id}).find(" 0 files,") == std::string::npos; };
  EXPECT_EQ(run_process({"sh", "-c", "cd " + mountpoint_ + " && ls -lA && find . | wc -l"}).status, 0);
  EXPECT_FALSE(staged());
  EXPECT_EQ(in_session("status --porcelain"), "");
  EXPECT_TRUE(staged());
}

TEST_F(GitInsideAMount, TheIndexOfASessionIsTrueInItsFork) {
  const std::string id = mount();
  EXPECT_EQ(in_session("status --porcelain"), "");
  std::filesystem::create_directory(file("fork"));
  done({"fork", id, file("fork")});
  EXPECT_EQ(run_process({"git", "-C", file("fork"), "diff-files", "--name-only"}).out, "");
  done({"rollback", id, "--discard-forks"});
}

// The mark says so, until all of it is there.
TEST_F(GitInsideAMount, OneWhoseMakerWasKilledIsMadeAnew) {
  const std::string id = mount();
  in_session("rev-parse HEAD");
  write(in_mount(".git/escrow-session"), "is being made\n");
  write(in_mount(".git/HEAD"), "");
  unmount_outside(id);
  mount({"--session", id});
  EXPECT_EQ(in_session("status --porcelain"), "");
  EXPECT_EQ(in_session("rev-parse HEAD"), head() + "\n");
}

TEST_F(GitInsideAMount, ASessionHasItFromItsOpeningOnOrNever) {
  const std::string id = mount({"--no-git"});
  unmount_outside(id);
  refused(2, "--git cannot be given with --session", {"mount", mountpoint_, "--session", id, "--git"});
  refused(2, "exclude each other", {"mount", mountpoint_, "--git", "--path-prefix", "dir"});
  EXPECT_EQ(done({"sessions"}).find("dir"), std::string::npos) << "a refused session stayed";
}

}  // namespace
}  // namespace escrow::test
