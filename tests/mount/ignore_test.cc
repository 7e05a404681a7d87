// What git would not add, as a person meets it: real trees beside `git add -A`, what the commands tell, imports.
#include <string>

#include "tests/mount/run_fixture.h"

namespace escrow::test {
namespace {

// Changes the tree of the working directory at random: sys.argv[1] is the seed.
constexpr const char* kChange = R"py(
import os, random, shutil, sys
random.seed(int(sys.argv[1]))
names = ['a', 'b', 'x.o', 'y.o', 'build', 'src', 'keep.o', 'f o', '.gitignore', 'z.pyc', '__pycache__']
patterns = ['*.o', '!keep.o', 'build/', '/src/*.pyc', '__pycache__', '**/a', 'src/**/b', '*.py[co]', '/x.o', 'f*',
            '!f\\ o', 'b', '/build/a', '!build', '*']
def content(name):
    if name == '.gitignore': return '\n'.join(random.choices(patterns, k=random.randint(1, 4))) + '\n'
    return str(random.random())
for _ in range(60):
    directories = sorted(root for root, below, _ in os.walk('.') if '.git' not in root.split('/'))
    where = random.choice(directories)
    name = random.choice(names)
    path = where + '/' + name
    if path.count('/') > 5: continue
    action = random.random()
    if os.path.lexists(path) and action < 0.3:
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    elif os.path.isdir(path) and not os.path.islink(path):
        continue
    elif action < 0.45 and name != '.gitignore':
        if os.path.lexists(path): os.unlink(path)
        os.mkdir(path)
    elif action < 0.5:
        if os.path.lexists(path): os.unlink(path)
        os.symlink('a', path)
    elif not os.path.islink(path):
        with open(path, 'w') as file: file.write(content(name))
        os.chmod(path, random.choice([0o644, 0o755]))
)py";

class EscrowIgnore : public EscrowRun {
 protected:
  void put(const std::string& name, const std::string& text) {
    shell("cat > '" + file(name) + "'", {.directory = directory_.path(), .environment = {}, .input = text});
  }
  std::string names() const { return git("ls-tree -r --name-only main"); }
};

TEST_F(EscrowIgnore, ACommitIsTheTreeThatGitAddWouldMake) {
  put("change.py", kChange);
  const std::string seed = "4";
  int left_out = 0;
  for (int round = 0; round < 3; ++round) {
    const std::string change = "python3 '" + file("change.py") + "' " + seed + std::to_string(round);
    const std::string expected =
        shell("rm -rf '" + file("work") + "' && git -c safe.directory='*' clone -q '" + repository_ + "' '" +
              file("work") + "' && cd '" + file("work") + "' && " + change + " && git add -A && git write-tree");
    const ProcessResult result = run(change);
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(git("rev-parse 'main^{tree}'"), expected) << "round " << round << ": " << result.err;
    left_out += result.err.find("git ignores") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(left_out, 0);
}

TEST_F(EscrowIgnore, TheSummaryCountsAndTheResultNames) {
  ASSERT_EQ(run("printf '*.o\\nbuild/\\n' > .gitignore").status, 0);
  const std::string make = "mkdir build && touch build/one build/two a.o 'b c.o' new.c";
  ProcessResult result = run({"--result", file("result")}, make);
  EXPECT_NE(result.err.find("1 added, 0 modified, 0 deleted (3 paths that git ignores are not in it)"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(result.err.find("a.o"), std::string::npos) << result.err;
  const std::string told = shell("python3 -c \"import json; r = json.load(open('" + file("result") +
                                 "')); print(sorted(r['omitted']['ignored']), r['left_out'])\"");
  EXPECT_EQ(told, "['a.o', 'b c.o', 'build'] {'ignored': 3}");
  result = run_process({ESCROW_BINARY, "--repo", repository_, "-v", "run", "--", "sh", "-c", "touch a.o"},
                       {.directory = directory_.path(), .environment = {}, .input = {}});
  EXPECT_NE(result.err.find("left out of the commit: 1 ignored (a.o)"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("changed nothing, so there is no commit (1 path that git ignores is not in it)"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(run({"--include-ignored"}, "touch a.o").status, 0);
  EXPECT_TRUE(is_in_head("a.o"));
  git("config escrow.ignore none");
  EXPECT_EQ(run("touch b.o").status, 0);
  EXPECT_TRUE(is_in_head("b.o"));
  git("config escrow.ignore some");
  result = run("touch c.o");
  EXPECT_NE(result.status, 0);
  EXPECT_NE(result.err.find("it must be git or none"), std::string::npos) << result.err;
}

TEST_F(EscrowIgnore, TheRepositorysOwnExcludeFileCounts) {
  shell("mkdir -p '" + repository_ + "/info' && { yes '# a comment' | head -n 2000; echo '*.swp'; } > '" +
        repository_ + "/info/exclude'");
  EXPECT_EQ(run("touch a.swp dir/b.swp kept").status, 0);
  EXPECT_TRUE(is_in_head("kept"));
  EXPECT_FALSE(is_in_head("a.swp"));
  EXPECT_FALSE(is_in_head("dir/b.swp"));
}

TEST_F(EscrowIgnore, StatusDiffAndCommitTellWhatIsLeftOut) {
  ASSERT_EQ(run("echo '*.o' > .gitignore").status, 0);
  shell("mkdir '" + file("mnt") + "'");
  const ProcessResult mounted = escrow({"mount", file("mnt")});
  ASSERT_EQ(mounted.status, 0) << mounted.err;
  shell("cd '" + file("mnt") + "' && touch x.o y.o && echo new > new");
  const std::string session = shell("escrow=" + std::string(ESCROW_BINARY) + "; $escrow --repo '" + repository_ +
                                    "' sessions --json | python3 -c \"import json, sys; "
                                    "print([s['session'] for s in json.load(sys.stdin) if s['state'] == 'open'][0])\"");
  const std::string counted = "ignored as git ignores it (2): --verbose names them, --include-ignored commits them";
  EXPECT_NE(escrow({"status", session}).out.find(counted), std::string::npos);
  EXPECT_NE(escrow({"-v", "status", session}).out.find("ignored as git ignores it (2): x.o, y.o"), std::string::npos);
  const ProcessResult diff = escrow({"diff", "--name-status", session});
  EXPECT_EQ(diff.out, "A\tnew\n");
  EXPECT_NE(diff.err.find(counted), std::string::npos) << diff.err;
  const ProcessResult committed = escrow({"commit", session, "--include-ignored"});
  EXPECT_EQ(committed.status, 0) << committed.err;
  EXPECT_EQ(committed.out.find("Left out"), std::string::npos) << committed.out;
  EXPECT_TRUE(is_in_head("x.o"));
  EXPECT_TRUE(is_in_head("y.o"));
}

TEST_F(EscrowIgnore, AnImportHonoursWhatIsInTheDirectory) {
  shell("cd '" + file("in") + "' && printf '*.o\\nnode_modules/\\n' > .gitignore && mkdir -p node_modules/x lib && "
        "chmod 0 node_modules && touch a.o tracked.o lib/b.o lib/c && echo '!b.o' > lib/.gitignore");
  ASSERT_EQ(run({"--include-ignored"}, "touch tracked.o old.log dir/old.log; rm a.txt").status, 0);
  const ProcessResult result = escrow({"import", file("in"), "--exclude", "*.log"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("ignored as git ignores it (2)"), std::string::npos) << result.out;
  EXPECT_EQ(names(), ".gitignore\na.txt\ndir/b.txt\ndir/old.log\ndir/sub/c.txt\nlib/.gitignore\nlib/b.o\nlib/c\n"
                     "old.log\ntracked.o");
  shell("cd '" + file("in") + "' && chmod 755 node_modules && touch node_modules/x/y z.log");
  ASSERT_EQ(escrow({"import", file("in"), "--exclude", "*.log", "--include-ignored"}).status, 0);
  EXPECT_TRUE(is_in_head("node_modules/x/y"));
  EXPECT_TRUE(is_in_head("a.o"));
  EXPECT_FALSE(is_in_head("z.log"));
  ASSERT_EQ(escrow({"import", file("in")}).status, 0);
  EXPECT_TRUE(is_in_head("node_modules/x/y")) << "it is tracked now";
  EXPECT_FALSE(is_in_head("dir/old.log"));
}

}  // namespace
}  // namespace escrow::test
