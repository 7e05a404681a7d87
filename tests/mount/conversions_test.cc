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

}  // namespace
}  // namespace escrow::test
