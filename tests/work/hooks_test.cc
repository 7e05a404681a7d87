// `escrow run` in a hook, where git has set GIT_DIR, GIT_INDEX_FILE and others for the repository of the hook. git
// inside the session works on the session.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/work/project_fixture.h"

namespace escrow::test {
namespace {

constexpr const char* kCommitsInside =
    "echo inside > inside && git add -A && git commit -qm inside && git log -1 --format=%s > \"$1/made\"\n"
    "env > \"$1/environment\"; exit 1";

class Hooks : public Project {
 protected:
  void SetUp() override {
    set_up("echo 1 > a");
    // Commits inside a session that is rolled back, and tells what it was given. The hook's own status is 0.
    write_program(inside_, "t='" + directory_.path() + "'\n'" ESCROW_BINARY "' run -- sh -c '\n" + kCommitsInside +
                               "' sh \"$t\" 2> \"$t/said\"\ntest $? = 1");
  }

  std::string file(const std::string& name) const { return directory_.path() + "/" + name; }
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(file(name)).rdbuf();
    return text.str();
  }
  static void write_program(const std::string& path, const std::string& script) {
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    shell("chmod +x '" + path + "'");
  }
  ProcessOptions in(const std::string& directory) const {
    return {.directory = file(directory), .environment = {}, .input = {}};
  }
  // Once the program has run in a hook of the repository whose git directory is `repository`.
  void expect_that_it_ran(const std::string& repository) const {
    EXPECT_EQ(read("made"), "inside\n") << read("said");
    const std::string environment = read("environment");
    EXPECT_TRUE(has(environment, "ESCROW_SESSION=")) << read("said");
    EXPECT_EQ(shell("grep -F '" + repository + "' '" + file("environment") + "' || true"), "");
    for (const char* name : {"\nGIT_DIR=", "\nGIT_INDEX_FILE=", "\nGIT_QUARANTINE_PATH=", "\nGIT_OBJECT_DIRECTORY="})
      EXPECT_FALSE(has("\n" + environment, name)) << name;
    shell("rm '" + file("made") + "' '" + file("environment") + "'");
  }
  // Subjects from the newest commit on.
  static std::string subjects(const ProcessOptions& where, const std::string& branch) {
    return shell("git log --format=%s " + branch + " -- | tr '\\n' ' '", where);
  }

  const std::string inside_ = file("inside.sh");
};

TEST_F(Hooks, ASessionInPostCommitLeavesTheCheckoutAsItIs) {
  in_project("git worktree add -q ../linked -b linked && cp ../inside.sh .git/hooks/post-commit");
  // git gives a hook of a linked work tree GIT_DIR, too.
  for (const std::string name : {"project", "linked"}) {
    const std::string branch = name == "linked" ? "linked" : "main";
    for (const std::string commit : {"git commit -qam all", "git commit -qm one a"}) {
      SCOPED_TRACE(name + ": " + commit);
      shell("echo '" + commit + "' > a && git add a && " + commit, in(name));
      expect_that_it_ran(project_ + "/.git");
      EXPECT_EQ(shell("git status --porcelain && git symbolic-ref --short HEAD && cat a", in(name)),
                branch + "\n" + commit);
    }
    EXPECT_EQ(subjects(in(name), branch), "one all first ");
    EXPECT_EQ(shell("git ls-files", in(name)), "a");
  }
  in_project("git fsck --strict");
}

TEST_F(Hooks, ASessionInAHookOfAPushLeavesTheRepositoryAsItIs) {
  const std::string bare = file("bare.git");
  in_project("git clone -q --bare . ../bare.git && cp ../inside.sh ../bare.git/hooks/pre-receive && "
             "git -C ../bare.git config user.name u && git -C ../bare.git config user.email u@example.invalid");
  ASSERT_EQ(run_escrow({"--repo", bare, "init"}, here()).status, 0);
  in_project("git commit -qm pushed --allow-empty && git push -q ../bare.git main");
  expect_that_it_ran(bare);
  EXPECT_EQ(subjects(in("bare.git"), "main"), "pushed first ");
  in_project("rm ../bare.git/hooks/pre-receive && cp ../inside.sh ../bare.git/hooks/post-receive");
  in_project("git commit -qm again --allow-empty && git push -q ../bare.git main");
  expect_that_it_ran(bare);
  EXPECT_EQ(subjects(in("bare.git"), "main"), "again pushed first ");
  EXPECT_EQ(shell("git for-each-ref --format='%(refname)' refs/heads && git fsck --strict && ! test -e index",
                  in("bare.git")),
            "refs/heads/main");
}

TEST_F(Hooks, ASessionInARebaseLeavesTheRebaseAsItIs) {
  in_project("git worktree add -q ../linked -b linked && cd ../linked && git commit -qm second --allow-empty && "
             "echo 3 > a && git commit -qam third");
  // HEAD is detached during a rebase, so the branch is named.
  write_program(inside_, shell("sed '1d; s| run -- | run --branch main -- |' '" + inside_ + "'"));
  shell("git rebase -q -x '" + inside_ + "' HEAD~1", in("linked"));
  expect_that_it_ran(project_ + "/.git");
  EXPECT_EQ(shell("git status --porcelain && git symbolic-ref --short HEAD && cat a", in("linked")), "linked\n3");
  EXPECT_EQ(subjects(in("linked"), "linked"), "third second first ");
  EXPECT_EQ(subjects(here(), "main"), "first ");
  EXPECT_EQ(status(), "");
}

TEST_F(Hooks, ACheckoutFollowsWithoutTheCallersConfigurationOfGit) {
  in_project("mkdir ../elsewhere");
  struct Given {
    std::string name, value;
  };
  int number = 1;
  for (const Given& given : {Given{"core.worktree", file("elsewhere")}, Given{"core.autocrlf", "true"}}) {
    SCOPED_TRACE(given.name);
    const std::string line = std::to_string(++number);
    const ProcessResult done = run_escrow({"run", "--", "sh", "-c", "echo " + line + " > a"},
                                          {.directory = project_,
                                           .environment = {{"GIT_CONFIG_COUNT", "1"},
                                                           {"GIT_CONFIG_KEY_0", given.name},
                                                           {"GIT_CONFIG_VALUE_0", given.value}},
                                           .input = {}});
    EXPECT_EQ(done.status, 0) << done.err;
    EXPECT_EQ(in_project("od -An -c a && ls -A ../elsewhere") + status(), "   " + line + "  \\n");
  }
}

TEST_F(Hooks, GarbageIsCollectedWhateverTheCallersVariablesSay) {
  for (const std::string name : {"GIT_DIR", "GIT_OBJECT_DIRECTORY", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT"}) {
    const ProcessResult done =
        run_escrow({"gc"}, {.directory = project_, .environment = {{name, "/nowhere"}}, .input = {}});
    EXPECT_EQ(done.status, 0) << name << ": " << done.err;
  }
}

}  // namespace
}  // namespace escrow::test
