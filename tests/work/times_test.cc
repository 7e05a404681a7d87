// Build tools decide by time what is newer: over sessions, over commits of Escrow and of git, they decide rightly.
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/mount/cli_fixture.h"

namespace escrow::test {
namespace {

class Times : public EscrowCommands {
 protected:
  // A run that is committed; its standard output.
  std::string run(const std::string& script, const std::vector<std::string>& options = {}) const {
    std::vector<std::string> line{"run"};
    line.insert(line.end(), options.begin(), options.end());
    line.insert(line.end(), {"--", "sh", "-ec", script});
    return done(line);
  }

  // A commit on main by git alone, in a clone, and its push.
  void push(const std::string& script, const std::string& date = "") const {
    const std::string clone = file("clone");
    shell("[ -d '" + clone + "' ] || git clone -q '" + repository_ + "' '" + clone + "'; cd '" + clone +
          "' && git config user.name p && git config user.email p@x && git fetch -q && git reset -q --hard origin/main "
          "&& { " + script + "; } && git add -A && " +
          (date.empty() ? "" : "GIT_COMMITTER_DATE='" + date + "' ") +
          "git commit -q -m pushed && git push -q --force origin HEAD:main");
  }

  // What `stat -c` says of the paths in a session that changes nothing, by line.
  std::vector<std::string> stat(const std::string& format, const std::string& paths) const {
    std::istringstream lines(run("stat -c '" + format + "' " + paths));
    std::vector<std::string> found;
    for (std::string line; std::getline(lines, line);) found.push_back(line);
    return found;
  }
  std::string time_of(const std::string& path) const { return stat("%.9Y", path).at(0); }
  std::string committed(const std::string& path) const { return git("log -1 --format=%ct main -- " + path); }

  static constexpr const char* kSources =
      "printf 'int one(void);int two(void);int main(void){return one()+two();}\\n' > main.c; "
      "echo 'int one(void){return 1;}' > one.c; echo 'int two(void){return 2;}' > two.c; "
      "printf 'prog: main.o one.o two.o\\n\\tcc -o prog main.o one.o two.o\\n%%.o: %%.c\\n\\tcc -c -o $@ $<\\n' "
      "> Makefile";
};

TEST_F(Times, MakeRebuildsWhatACommitChangedAndNothingElse) {
  // Objects are committed with their sources.
  run(std::string(kSources) + "; make -s; make -q");
  run("make -q");
  run("echo unrelated > README");
  run("make -q");
  push("echo 'int one(void){return 11;}' > one.c");
  EXPECT_EQ(run("make | grep -v '^make'"), "cc -c -o one.o one.c\ncc -o prog main.o one.o two.o");
  run("make -q; ./prog || test $? = 13");
  push("echo unrelated > LICENSE", "2001-02-03T04:05:06Z");
  run("make -q");
  // A commit of git's that is dated long before the objects were made.
  push("echo 'int two(void){return 22;}' > two.c", "2001-02-03T04:05:06Z");
  EXPECT_EQ(run("make | grep -v '^make'"), "cc -c -o two.o two.c\ncc -o prog main.o one.o two.o");
  run("echo 'int one(void){return 12;}' > one.c");
  EXPECT_EQ(run("make | grep -v '^make'; ./prog || echo $?"),
            "cc -c -o one.o one.c\ncc -o prog main.o one.o two.o\n34");
}

TEST_F(Times, OutputsOutsideOfCommitsAreNewerThanWhatTheyWereMadeFromOnly) {
  // A build directory of the host that sessions share.
  const std::string shared = file("shared");
  shell("mkdir '" + shared + "'");
  const std::vector<std::string> with{"--mount", "path=out,source=host:" + shared + ",mode=read-write"};
  run(std::string("echo 1 > source; printf 'out/product: source\\n\\tcp source out/product\\n' > Makefile"));
  EXPECT_EQ(run("make", with), "cp source out/product");
  run("make -q", with);
  run("echo unrelated > README");
  run("make -q", with);
  // Edited in the second in which the product was made.
  run("make -q; echo 2 > source", with);
  EXPECT_EQ(run("make", with), "cp source out/product");
  push("echo 3 > source", "2001-02-03T04:05:06Z");
  EXPECT_EQ(run("make", with), "cp source out/product");
  run("make -q", with);
}

TEST_F(Times, NinjaRebuildsWhatACommitChangedAndNothingElse) {
  const std::string shared = file("shared");
  shell("mkdir '" + shared + "'");
  const std::vector<std::string> with{"--mount", "path=out,source=host:" + shared + ",mode=read-write"};
  run("echo 1 > a.in; echo 2 > b.in; printf 'builddir = out\\nrule copy\\n  command = cp $in $out\\n"
      "build out/a: copy a.in\\nbuild out/b: copy b.in\\n' > build.ninja");
  EXPECT_NE(run("ninja", with).find("[2/2]"), std::string::npos);
  run("echo unrelated > README");
  EXPECT_EQ(run("ninja", with), "ninja: no work to do.");
  push("echo 11 > a.in");
  EXPECT_NE(run("ninja -v", with).find("[1/1] cp a.in out/a"), std::string::npos);
  EXPECT_EQ(run("ninja", with), "ninja: no work to do.");
  run("echo 22 > b.in");
  EXPECT_NE(run("ninja -v", with).find("[1/1] cp b.in out/b"), std::string::npos);
  EXPECT_EQ(run("ninja", with), "ninja: no work to do.");
}

TEST_F(Times, RsyncNamesWhatChangedAndNothingElse) {
  const std::string copy = file("copy");
  const std::string look = "rsync -ain --delete --modify-window=-1 --exclude=/.git ./ '" + copy + "/'";
  run("rsync -a --modify-window=-1 ./ '" + copy + "/'");
  EXPECT_EQ(run(look), "");
  run("echo more >> dir/b.txt");
  EXPECT_EQ(run(look), ">f.st...... dir/b.txt");
  run("rsync -a --modify-window=-1 ./ '" + copy + "/'");
  // The same size.
  push("printf 'AAAAA' | dd of=a.txt conv=notrunc status=none; mkdir -p new/er; echo 1 > new/er/file");
  std::string named = run(look);
  EXPECT_NE(named.find(" a.txt"), std::string::npos) << named;
  EXPECT_NE(named.find(" new/er/file"), std::string::npos) << named;
  EXPECT_EQ(named.find("b.txt"), std::string::npos) << named;
  EXPECT_EQ(named.find("c.txt"), std::string::npos) << named;
}

TEST_F(Times, GitStatusTrustsTheIndexThatTheSessionBeganWith) {
  run("mkdir -p deep/er; echo 1 > deep/er/one; echo 2 > deep/two");
  push("echo 11 > deep/er/one");
  run("echo 22 > deep/two; echo 3 > three");
  // Without a refresh git names what differs in time or size from the index.
  EXPECT_EQ(run("git diff-files --name-only; git status --porcelain", {"--git"}), "");
  EXPECT_EQ(run("git diff-files; touch -d 2001-01-01 deep/er/one; git diff-files --name-only", {"--git"}),
            "deep/er/one");
}

TEST_F(Times, ATimeIsThatOfTheCommitWhichLastChangedTheFile) {
  run("echo 1 > one; echo 2 > dir/two; mkdir fresh; echo 3 > fresh/three");
  run("true");
  // Each of several commits that come with one push, in seconds of their own: the second of one second is at its end.
  push("echo 11 > one; git add -A; git commit -q -m 1; made=$(git log -1 --format=%ct); "
       // By git's own clock, which date(1) is a tick ahead of.
       "while git var GIT_COMMITTER_IDENT | grep -q \" $made \"; do :; done; echo 22 > dir/two");
  const std::vector<std::string> first = stat("%Y", "one dir/two fresh/three a.txt");
  EXPECT_EQ(first, (std::vector<std::string>{committed("one"), committed("dir/two"), committed("fresh/three"),
                                             first.at(3)}));
  const std::vector<std::string> exact = stat("%.9Y", "one dir/two fresh fresh/three a.txt dir/sub/c.txt");
  run("rm dir/two; echo 4 > dir/four; chmod +x one");
  std::vector<std::string> later = stat("%.9Y", "one dir/four fresh fresh/three a.txt dir/sub/c.txt");
  EXPECT_GT(later.at(1), exact.at(1));
  later[1] = exact[1];
  EXPECT_EQ(later, exact);
}

TEST_F(Times, TheyStayThroughWhatBecomesOfTheBranch) {
  run("echo 1 > one; mkdir sub; echo 2 > sub/two");
  const std::string before = time_of("one"), two = time_of("sub/two");
  const std::string old_head = head();
  run("echo 11 > one");
  const std::string changed = time_of("one");
  EXPECT_GT(changed, before);
  // Rewound: older content, but newer than what was made from the other.
  git("update-ref refs/heads/main " + old_head);
  const std::string rewound = time_of("one");
  EXPECT_GT(rewound, changed);
  EXPECT_EQ(time_of("sub/two"), two);
  // Changed and taken back in one push: it has not changed.
  push("echo 5 > one; git add -A; git commit -q -m 5; echo 1 > one; echo 6 > six");
  EXPECT_EQ(time_of("one"), rewound);
  // Rewritten, with what was seen last collected.
  push("git checkout -q --orphan other; echo 7 > sub/two");
  git("reflog expire --expire=now --all");
  git("gc -q --prune=now");
  EXPECT_GT(time_of("sub/two"), two);
  const std::string one = time_of("one");
  EXPECT_GE(one, rewound);
  // An index that is lost.
  shell("rm '" + repository_ + "'/escrow/times.db*");
  EXPECT_GE(time_of("one"), one);
}

TEST_F(Times, AnOpenSessionKeepsItsTimesWhateverOthersCommit) {
  run("mkdir -p sub/deep; echo 1 > sub/deep/one; echo 2 > sub/two");
  push("echo 11 > sub/deep/one");
  const std::string session = mount();
  const std::string look = "cd '" + mountpoint_ + "' && stat -c '%n %.9Y' a.txt dir sub/two moved/deep/one moved/deep";
  const std::string edit = "cd '" + mountpoint_ + "' && mkdir moved && mv sub/deep moved/deep && chmod 600 a.txt";
  shell(edit);
  const std::string before = shell(look);
  push("echo 111 > sub/deep/one; echo 22 > sub/two; echo 3 > dir/three");
  run("echo 44 > a.txt");
  run("true");
  EXPECT_EQ(shell(look), before);
  // Also after its host has gone, and on a new base.
  unmount_outside(session);
  done({"mount", mountpoint_, "--session", session});
  EXPECT_EQ(shell(look), before);
  EXPECT_EQ(escrow({"verify"}).status, 0);
}

TEST_F(Times, ADamagedIndexIsNamedAndMadeAnew) {
  run("echo 1 > one");
  for (const char* end : {"", "-wal"})
    std::ofstream(repository_ + "/escrow/times.db" + end, std::ios::trunc) << "no database";
  const ProcessResult verified = escrow({"verify"});
  EXPECT_EQ(verified.status, 1);
  EXPECT_NE(verified.out.find("the next session that is opened makes it anew"), std::string::npos) << verified.out;
  EXPECT_EQ(run("cat one; echo 2 > two"), "1");
  EXPECT_EQ(escrow({"verify"}).status, 0);
}

TEST_F(Times, BelowAPrefixTheyAreTheSame) {
  run("mkdir -p sub/deep; echo 1 > sub/deep/one; echo 2 > sub/deep/two");
  push("echo 11 > sub/deep/one");
  const std::vector<std::string> whole = stat("%.9Y", "sub/deep/one sub/deep/two sub/deep");
  std::istringstream lines(run("stat -c %.9Y one two .", {"--path-prefix", "sub/deep"}));
  std::vector<std::string> below;
  for (std::string line; std::getline(lines, line);) below.push_back(line);
  EXPECT_EQ(below, whole);
  EXPECT_NE(whole.at(0), whole.at(1));
}

}  // namespace
}  // namespace escrow::test
