// The conversions of git at check-in that Escrow does not make: which files are named, beside what real git does.
#include <string>

#include "tests/mount/run_fixture.h"

namespace escrow::test {
namespace {

constexpr const char* kAttributes = R"(*.txt text
*.auto text=auto
*.crlf eol=crlf
*.lf eol=lf
*.bin -text
*.either text=auto eol=crlf
*.old crlf
*.input text=input
*.no !text
*.u16 text working-tree-encoding=UTF-16LE
*.u8 working-tree-encoding=utf8
*.id ident
*.key filter=upper
*.odd filter
*.dat binary
[attr]mine text ident
*.mine mine
)";

// Files of every kind of content for every line of it, in the working directory.
constexpr const char* kConversion = R"py(
import os
contents = {'lf': b'a\nb\n', 'crlf': b'a\r\nb\r\n', 'mixed': b'a\nb\r\n', 'nul': b'a\r\n\0b\r\n', 'cr': b'a\rb\r\n',
            'end': b'a\r\n' + b'b\r', 'odd': b'\r\n\x01\x02', 'z': b'a\r\n\x1a', 'empty': b'',
            'far': b'x' * 70000 + b'\r\n', 'cut': b'x' * 65535 + b'\r\n', 'id': b'$Id$\n', 'was': b'v $Id: 1 $ w\n',
            'lines': b'$Id: 1\n $\n',
            'twice': b'$$Id: 1 $\n', 'both': b'$Id: 1 $\r\n'}
for kind in ['txt', 'auto', 'crlf', 'lf', 'bin', 'either', 'old', 'input', 'no', 'u8', 'id', 'key', 'odd', 'dat',
             'mine', 'none']:
    for name, content in contents.items():
        with open(f'{name}.{kind}', 'wb') as file: file.write(content)
with open('a.u16', 'wb') as file: file.write('a\nb\n'.encode('utf-16le'))
with open('kept.auto', 'ab') as file: file.write(b'more\r\n')
with open('kept.txt', 'ab') as file: file.write(b'more\r\n')
os.rename('moved.txt', 'there.txt')
os.chmod('mode.txt', 0o755)
)py";

class EscrowConversions : public EscrowRun {
 protected:
  void put(const std::string& name, const std::string& text) {
    shell("cat > '" + file(name) + "'", {.directory = directory_.path(), .environment = {}, .input = text});
  }
  // Of the last result: the paths that a commit holds without a conversion.
  std::string unconverted() const {
    return shell("python3 -c \"import json; o = json.load(open('" + file("result") + "'))['omitted']; "
                 "print(*sorted({p for k, v in o.items() if k.startswith('un') for p in v}), sep='\\n')\"");
  }
};

TEST_F(EscrowConversions, ThoseWhoseBytesGitWouldChangeAreNamed) {
  put("change.py", kConversion);
  put("attributes", kAttributes);
  git("config escrow.filters raw");
  // Before there are attributes: git leaves those alone that have CRLF and are text=auto.
  ASSERT_EQ(run("for f in kept.auto kept.txt moved.txt mode.txt; do printf 'a\\r\\n' > $f; done").status, 0);
  ASSERT_EQ(run("cp '" + file("attributes") + "' .gitattributes").status, 0);
  // What git stores, beside the bytes themselves. Moved whole, or with another mode only: none of this session's doing.
  const std::string expected = shell(
      "git -c safe.directory='*' clone -q '" + repository_ + "' '" + file("work") + "' && cd '" + file("work") +
      "' && git checkout -q main && git config filter.upper.clean 'sed s/^/x/' && python3 '" + file("change.py") +
      "' && git -c core.safecrlf=false add -A 2>/dev/null && "
      "git diff --cached --name-only --no-renames --diff-filter=AM |"
      " grep -v -e '^there.txt' -e '^mode.txt' | while read f; do test $(git rev-parse \":$f\") = "
      "$(git hash-object --no-filters \"$f\") || echo \"$f\"; done | LC_ALL=C sort");
  const ProcessResult result = run({"--result", file("result")}, "python3 '" + file("change.py") + "'");
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(unconverted(), expected);
  for (const char* one : {"crlf.txt", "cut.auto", "mixed.crlf", "was.id", "lf.key", "a.u16", "kept.txt", "both.mine"})
    EXPECT_NE(('\n' + expected + '\n').find('\n' + std::string(one) + '\n'), std::string::npos) << one;
  EXPECT_EQ(shell("cd '" + file("work") + "' && for f in crlf.txt was.id lf.key a.u16; do git -C '" + repository_ +
                  "' show main:$f | cmp - $f; done"),
            "")
      << "they are committed as they are";
}

TEST_F(EscrowConversions, OneSentenceNamesAttributesAndFiles) {
  put("attributes", kAttributes);
  git("config escrow.filters raw");
  const std::string change = "cp '" + file("attributes") + "' .gitattributes; printf 'a\\r\\n' > a.txt; "
                             "echo s > s.key; "
                             "printf '$Id: 1 $' > i.id; echo u > u.u16; echo fine > fine.txt";
  const ProcessResult result = run(change);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("committed as they are, where .gitattributes has git convert files at check-in: "
                            "text or eol (a.txt); working-tree-encoding (u.u16); ident (i.id); filter (s.key)"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(result.err.find("not in it"), std::string::npos) << "nothing is left out: " << result.err;
  EXPECT_EQ(result.err.find("fine.txt"), std::string::npos) << result.err;
  const ProcessResult again = run("echo more > fine.txt");
  EXPECT_EQ(again.err.find("committed as they are"), std::string::npos) << "of this commit only: " << again.err;

  shell("mkdir '" + file("mnt") + "'");
  const ProcessResult mounted = escrow({"mount", file("mnt")});
  ASSERT_EQ(mounted.status, 0) << mounted.err;
  const std::string session = mounted.out.substr(0, 16);
  shell("printf 'b\\r\\n' > '" + file("mnt/b.txt") + "'");
  const std::string told = "conversion of line ends, which .gitattributes asks for (text, eol) and Escrow does not "
                           "make, of (1): b.txt";
  EXPECT_NE(escrow({"status", session}).out.find(told), std::string::npos);
  const ProcessResult committed = escrow({"commit", session});
  EXPECT_EQ(committed.status, 0) << committed.err;
  EXPECT_NE(committed.out.find(told), std::string::npos) << committed.out;
}

// Where git would store other bytes, a secret for example, none are stored.
class EscrowFilters : public EscrowConversions {
 protected:
  void SetUp() override {
    EscrowConversions::SetUp();
    put("attributes", "*.key filter=git-crypt diff=git-crypt\npublic.key !filter\n*.u16 working-tree-encoding=UTF-16\n"
                      "*.u8 working-tree-encoding=UTF-8\n*.off -filter\n*.odd filter\n");
    git("config escrow.filters raw");
    ASSERT_EQ(run("cp '" + file("attributes") + "' .gitattributes; printf sealed > old.key; echo 1 > plain").status, 0);
    git("config --unset escrow.filters");
    base_ = head();
  }
  static std::string id_in(const ProcessResult& result) {
    return result.err.substr(result.err.find("session ") + 8, 16);
  }
  // What the refusal names; the branch has not moved, and nothing of it is in the repository.
  void expect_refused(const ProcessResult& result, int status, const std::string& named) const {
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_NE(result.err.find("as they are, for example in clear text: " + named + "; "), std::string::npos)
        << result.err;
    EXPECT_NE(result.err.find("git config escrow.filters raw"), std::string::npos) << result.err;
    EXPECT_EQ(head(), base_);
  }
  bool is_stored(const std::string& text) const {
    return shell("git -C '" + repository_ + "' cat-file -e $(printf %s '" + text + "' | git hash-object --stdin) "
                 "2> /dev/null && echo yes || true") == "yes";
  }

  std::string base_;
};

TEST_F(EscrowFilters, ACommitIsRefusedTheSessionStaysOpenAndEachWayOutWorks) {
  const std::string script = "printf secret-1 > a.key; mkdir d; printf secret-2 > d/b.key; printf 'x' > c.u16; "
                             "echo 2 > plain; echo p > public.key; echo p > p.u8; echo p > p.off; echo p > p.odd; "
                             ": > empty.key; mv old.key new.key";
  const ProcessResult refused = run(script);
  expect_refused(refused, 125, "a.key (filter=git-crypt), c.u16 (working-tree-encoding=UTF-16), "
                               "d/b.key (filter=git-crypt)");
  EXPECT_FALSE(is_stored("secret-1")) << "clear text is in the repository's objects";
  const std::string id = id_in(refused);
  expect_refused(escrow({"commit", id}), 1, "a.key (filter=git-crypt), c.u16 (working-tree-encoding=UTF-16), "
                                            "d/b.key (filter=git-crypt)");
  EXPECT_EQ(escrow({"discard", id, "a.key", "d/b.key", "c.u16"}).status, 0);
  const ProcessResult committed = escrow({"commit", id});
  ASSERT_EQ(committed.status, 0) << committed.err;
  EXPECT_EQ(content("plain") + content("new.key") + content("public.key"), "2sealedp");
  EXPECT_FALSE(is_in_head("a.key"));

  const ProcessResult without = run({"--exclude", "*.key"}, "printf secret-1 > a.key; echo 3 > plain");
  EXPECT_EQ(without.status, 0) << without.err;
  EXPECT_EQ(content("plain"), "3");
  EXPECT_FALSE(is_in_head("a.key"));

  base_ = head();
  const ProcessResult again = run("printf secret-1 > a.key");
  expect_refused(again, 125, "a.key (filter=git-crypt)");
  git("config escrow.filters raw");
  EXPECT_EQ(escrow({"commit", id_in(again)}).status, 0);
  EXPECT_EQ(content("a.key"), "secret-1");
  git("config escrow.filters nonsense");
  const ProcessResult nonsense = run("echo 4 > plain");
  EXPECT_NE(nonsense.err.find("escrow.filters"), std::string::npos) << nonsense.err;
  EXPECT_EQ(content("plain"), "3");
}

TEST_F(EscrowFilters, AttributesAreThoseOfWhatIsCommitted) {
  // Of a directory, by the same session; taken back by it; a file that has only moved, or changed its mode, or goes.
  expect_refused(run("mkdir d; echo '* filter=x' > d/.gitattributes; printf secret > d/plain"), 125,
                 "d/.gitattributes (filter=x), d/plain (filter=x)");
  EXPECT_EQ(run("echo '*.key -filter' > .gitattributes; printf open > a.key; chmod +x old.key").status, 0);
  EXPECT_EQ(run("rm old.key .gitattributes").status, 0);
  base_ = head();
  shell("mkdir -p '" + repository_ + "/info' && echo '/plain filter=x' > '" + repository_ + "/info/attributes'");
  expect_refused(run("echo 9 > plain"), 125, "plain (filter=x)");
  shell("rm '" + repository_ + "/info/attributes'");

  // Others wrote the attributes while the session was open.
  shell("mkdir '" + file("mnt") + "'");
  const ProcessResult mounted = escrow({"mount", file("mnt")});
  ASSERT_EQ(mounted.status, 0) << mounted.err;
  // So much is published before the branch moves.
  shell("yes secret | head -c 6000000 > '" + file("mnt/late") + "'");
  ASSERT_EQ(run("echo '/late filter=x' > .gitattributes").status, 0);
  base_ = head();
  expect_refused(escrow({"commit", mounted.out.substr(0, 16)}), 1, "late (filter=x)");
  EXPECT_EQ(shell("git -C '" + repository_ + "' cat-file -e $(git hash-object --no-filters '" + file("mnt/late") +
                  "') 2> /dev/null && echo stored || true"), "");
}

// A link that leads to itself stands for whatever keeps a file from being read: root may read all others.
TEST_F(EscrowFilters, AttributesThatCannotBeReadRefuseTheCommit) {
  shell("mkdir '" + file("mnt") + "'");
  const ProcessResult mounted = escrow({"mount", file("mnt")});
  ASSERT_EQ(mounted.status, 0) << mounted.err;
  shell("printf secret-3 > '" + file("mnt/plain") + "'");
  base_ = head();
  for (const std::string name : {"attributes", "exclude"}) {
    const std::string path = repository_ + "/info/" + name;
    shell("mkdir -p '" + repository_ + "/info' && rm -f '" + path + "' && ln -s " + name + " '" + path + "'");
    const ProcessResult committed = escrow({"commit", mounted.out.substr(0, 16)});
    const ProcessResult ran = run("printf secret-3 > plain");
    for (const ProcessResult& refused : {committed, ran}) {
      EXPECT_EQ(refused.status, 125);
      EXPECT_NE(refused.err.find("/info/" + name), std::string::npos) << refused.err;
    }
    EXPECT_EQ(head(), base_);
    EXPECT_FALSE(is_stored("secret-3")) << "clear text is in the repository's objects";
    shell("rm '" + path + "'");
  }
  EXPECT_EQ(escrow({"commit", mounted.out.substr(0, 16)}).status, 0);
}

// A failed command's work is not lost; whoever fetches or mirrors the repository is not shown it.
TEST_F(EscrowFilters, AResultThatIsKeptIsHiddenFromFetchesAndTheRunSaysSo) {
  const auto shown = [&] { return shell("git ls-remote '" + repository_ + "' 'refs/sessions/*' | cut -f 2"); };
  const ProcessResult failed =
      run({"--keep-on-failure"}, "printf secret-5 > a.key; echo 9 > plain; exit 3");
  EXPECT_EQ(failed.status, 3) << failed.err;
  const std::string id = id_in(failed), name = "refs/sessions/" + id;
  const std::string said = "the result of session " + id + " has bytes that git would convert at check-in as they "
                           "are, for example in clear text: a.key (filter=git-crypt); git fetch and clone are not "
                           "shown " + name;
  EXPECT_NE(failed.err.find(said), std::string::npos) << failed.err;
  EXPECT_EQ(git("show " + name + ":a.key"), "secret-5");
  EXPECT_EQ(shown(), "");
  shell("git clone -q --mirror 'file://" + repository_ + "' '" + file("mirror") + "'");
  EXPECT_EQ(shell("git -C '" + file("mirror") + "' cat-file -e $(printf secret-5 | git hash-object --stdin) "
                  "2> /dev/null && echo leaked || true"), "");
  // Rolled back by hand, and another one that has nothing to hide.
  shell("mkdir '" + file("mnt") + "'");
  const ProcessResult mounted = escrow({"mount", file("mnt")});
  ASSERT_EQ(mounted.status, 0) << mounted.err;
  shell("printf secret-6 > '" + file("mnt/a.key") + "'");
  EXPECT_EQ(escrow({"rollback", "--keep-result", mounted.out.substr(0, 16)}).status, 0);
  EXPECT_EQ(shown(), "");
  const ProcessResult plain = run({"--keep-on-failure"}, "echo 9 > plain; exit 3");
  EXPECT_EQ(plain.err.find("clear text"), std::string::npos) << plain.err;
  EXPECT_EQ(shown(), "refs/sessions/" + id_in(plain));
  git("config escrow.filters raw");
  const ProcessResult raw = run({"--keep-on-failure"}, "printf secret-7 > a.key; exit 3");
  EXPECT_EQ(raw.err.find("clear text"), std::string::npos) << raw.err;
  EXPECT_NE(shown().find("refs/sessions/" + id_in(raw)), std::string::npos);
}

TEST_F(EscrowFilters, AResultThatWaitsIsJudgedByTheHeadThatOthersMoved) {
  const ProcessResult sealed = run({"--require-approval"}, "printf secret-4 > late");
  ASSERT_EQ(sealed.status, 123) << sealed.err;
  const std::string id = id_in(sealed), result = git("rev-parse refs/sessions/" + id);
  ASSERT_EQ(run("echo '/late filter=x' > .gitattributes").status, 0);
  base_ = head();
  expect_refused(escrow({"approve", id}), 1, "late (filter=x)");
  EXPECT_EQ(git("rev-parse refs/sessions/" + id), result) << "it waits as it was";
}

TEST_F(EscrowFilters, ImportsSealsAndCommitsOfGitInsideAreRefusedToo) {
  shell("mkdir -p '" + file("in") + "/sub' && printf secret > '" + file("in") + "/sub/a.key' && echo '*.key "
        "filter=git-crypt' > '" + file("in") + "/.gitattributes'");
  const ProcessResult imported = escrow({"import", file("in")});
  expect_refused(imported, 1, "sub/a.key (filter=git-crypt)");
  EXPECT_FALSE(is_stored("secret"));
  const ProcessResult sealed = run({"--require-approval"}, "printf secret-2 > a.key");
  expect_refused(sealed, 125, "a.key (filter=git-crypt)");
  EXPECT_FALSE(is_stored("secret-2"));
  // The secret is in the first commit only.
  const ProcessResult kept = run({"--git-commits", "keep"},
                                 "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=a "
                                 "GIT_COMMITTER_EMAIL=a@x; printf secret-3 > a.key; git add -A; git commit -qm one; "
                                 "rm a.key; echo 2 > plain; git add -A; git commit -qm two");
  expect_refused(kept, 125, "a.key (filter=git-crypt)");
  EXPECT_FALSE(is_stored("secret-3"));
}

}  // namespace
}  // namespace escrow::test
