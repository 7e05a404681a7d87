// Mount tables that are kept with their session: copies, revisions, tables from a file, limits; end to end.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "tests/mount/cli_fixture.h"

namespace escrow::test {
namespace {

class KeptMountTable : public EscrowCommands {
 protected:
  void SetUp() override {
    EscrowCommands::SetUp();
    if (IsSkipped()) return;
    shell("mkdir -p host/sub && printf one > host/one.txt && printf two > host/sub/two.txt",
          {.directory = directory_.path(), .environment = {}, .input = {}});
  }
  std::string listed(const std::string& path) const { return shell("ls -A '" + path + "' | tr '\\n' ' '"); }
  // errno of the write(2) or open(2) that fails; 0: none.
  static int error_of_append(const std::string& path, const std::string& text, int flags = O_APPEND) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
    if (fd < 0) return errno;
    const bool is_written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    const int error = is_written ? 0 : errno;
    ::close(fd);
    return error;
  }
};

TEST_F(KeptMountTable, WhatWasInjectedStaysWhatItWasAndIsOfTheSession) {
  const std::string session =
      mount({"--inject", "tools=" + file("host"), "--inject", "work=" + file("host") + ",mode=overlay"});
  write(in_mount("work/one.txt"), "mine");
  unmount_outside(session);
  shell("rm -r '" + file("host") + "'");
  mount({"--session", session});
  EXPECT_EQ("one", read(in_mount("tools/one.txt"))) << "the source is gone, the copy is not";
  EXPECT_EQ("mine", read(in_mount("work/one.txt")));
  unmount_outside(session);
  shell("mkdir '" + file("host") + "' && printf new > '" + file("host") + "/new.txt'");
  mount({"--session", session, "--inject", "tools=" + file("host")});
  EXPECT_EQ("new.txt ", listed(in_mount("tools"))) << "replaced whole";
  EXPECT_EQ("mine", read(in_mount("work/one.txt")));
  EXPECT_EQ("2", shell("ls -d '" + repository_ + "/escrow/sessions/'*/injected.* | wc -l")) << "the old copy is gone";
  done({"rollback", session});
  EXPECT_EQ("0", shell("find '" + repository_ + "/escrow' -name 'injected.*' | wc -l"));
}

TEST_F(KeptMountTable, ASignalEndsTheCopyOfWhatIsInjected) {
  for (const std::string& source : {"inject:" + file("host"), std::string("rev:main:dir")}) {
    // The signal is there from before the command on.
    const ProcessResult result = run_process(
        {"/usr/bin/python3", "-c",
         "import os, signal, sys\n"
         "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
         "os.kill(os.getpid(), signal.SIGTERM)\n"
         "os.execv(sys.argv[1], sys.argv[1:])",
         ESCROW_BINARY, "--repo", repository_, "run", "--mount", "path=tools,source=" + source, "--", "true"});
    EXPECT_EQ(125, result.status) << result.err;
    EXPECT_NE(std::string::npos, result.err.find("was stopped: its caller waits for it no longer")) << result.err;
    EXPECT_EQ("0", shell("find '" + repository_ + "/escrow/sessions' -mindepth 1 -maxdepth 1 -type d | wc -l"))
        << "no session was opened";
  }
}

TEST_F(KeptMountTable, ATableIsReadFromAFile) {
  write(file("table"),
        R"([{"path": "tools", "source": "inject", "executable": ["x.sh"],
             "files": {"x.sh": "IyEvYmluL3NoCmVjaG8gaGkK", "d/mod.py": "WT0yCg=="}},
            {"path": "ext", "source": "host:)" +
            file("host") + R"("}, {"path": "tmp", "source": "scratch"}])");
  const ProcessResult result = escrow(
      {"run", "--mount-table", file("table"), "--mount", "path=more,source=scratch", "--", "sh", "-ec",
       "tools/x.sh > out; cat tools/d/mod.py ext/one.txt >> out; touch tmp/x more/x; test ! -w tools/d || "
       "! touch tools/d/x; stat -c %a tools/x.sh tools/d/mod.py tools/d >> out"});
  ASSERT_EQ(0, result.status) << result.err;
  EXPECT_EQ("hi\nY=2\none755\n644\n755", content("out"));
  EXPECT_EQ("a.txt\ndir/b.txt\ndir/sub/c.txt\nout", git("ls-tree -r --name-only main")) << "nothing of an entry";
}

TEST_F(KeptMountTable, WhatIsWrongWithATableIsSaidInOneSentence) {
  const std::pair<const char*, const char*> wrong[] = {
      {"not JSON", "[{"},
      {"not JSON", ""},
      {"\"x\" is not known here", "[],\"x\":1"},
      {"neither an object nor an array of objects", "[1]"},
      {"has no path", R"([{"source": "scratch"}])"},
      {"has no source", R"([{"path": "x"}])"},
      {"\"what\" is not known here", R"([{"path": "x", "source": "scratch", "what": 1}])"},
      {"not absolute", R"([{"path": "x", "source": "host:host"}])"},
      {"whose value is not base64", R"([{"path": "x", "source": "inject", "files": {"a": "?"}}])"},
      {"none of its files", R"([{"path": "x", "source": "inject", "files": {}, "executable": ["a"]}])"},
      {"as a file and as a directory", R"([{"path": "x", "source": "inject", "files": {"a": "", "a/b": ""}}])"},
      {"a source that is not inject", R"([{"path": "x", "source": "scratch", "files": {"a": ""}}])"},
      {"..", R"([{"path": "x", "source": "inject", "files": {"../a": ""}}])"},
      {"has 'x' twice", R"([{"path": "x", "source": "scratch"}, {"path": "x", "source": "scratch"}])"},
      {"neither a branch 'none' nor a commit", R"([{"path": "x", "source": "rev:none"}])"},
      {"is not in main", R"([{"path": "x", "source": "rev:main:none"}])"},
      {"is no directory in main", R"([{"path": "x", "source": "rev:main:a.txt"}])"},
      {"and is read-only", R"([{"path": "x", "source": "rev:main", "entries_limit": 1}])"},
      {"entries_limit", R"([{"path": "x", "source": "scratch", "entries_limit": 0}])"},
  };
  for (const auto& [words, table] : wrong) {
    write(file("table"), table);
    const ProcessResult result = escrow({"mount", mountpoint_, "--mount-table", file("table")});
    EXPECT_NE(0, result.status) << table;
    EXPECT_NE(std::string::npos, result.err.find(words)) << table << "\n" << result.err;
  }
  EXPECT_NE(0, escrow({"mount", mountpoint_, "--mount-table", file("nowhere")}).status);
  EXPECT_EQ("0", shell("find '" + repository_ + "/escrow/sessions' -mindepth 1 -maxdepth 1 -type d | wc -l"))
      << "no session was opened";
}

TEST_F(KeptMountTable, ARevisionIsShownAsItWasWhenTheSessionWasOpened) {
  git("branch other main");
  const std::string first = git("rev-parse main");
  ASSERT_EQ(0, escrow({"run", "--branch", "other", "--", "sh", "-ec",
                       "echo other > a.txt; ln -s a.txt link; echo x > run; chmod 755 run"})
                   .status);
  const std::string session =
      mount({"--mount", "path=old,source=rev:other", "--mount", "path=part,source=rev:main:dir/sub,mode=overlay",
             "--mount", "path=id,source=rev:" + first});
  EXPECT_EQ("a.txt dir link run ", listed(in_mount("old")));
  EXPECT_EQ("other\n", read(in_mount("old/link")));
  EXPECT_EQ("755", shell("stat -c %a '" + in_mount("old/run") + "'"));
  EXPECT_EQ("c.txt ", listed(in_mount("part")));
  EXPECT_EQ("a\n", read(in_mount("id/a.txt")));
  EXPECT_EQ(EACCES, error_of_append(in_mount("old/a.txt"), "x"));
  EXPECT_EQ(0, error_of_append(in_mount("part/c.txt"), "mine"));
  ASSERT_EQ(0, escrow({"run", "--branch", "other", "--", "sh", "-c", "echo later > a.txt"}).status);
  unmount_outside(session);
  mount({"--session", session});
  EXPECT_EQ("other\n", read(in_mount("old/a.txt"))) << "the branch has moved on, the entry has not";
  EXPECT_NE(std::string::npos, read(in_mount("part/c.txt")).find("mine"));
  done({"commit", session});
  EXPECT_EQ("a.txt\ndir/b.txt\ndir/sub/c.txt", git("ls-tree -r --name-only main"));
}

TEST_F(KeptMountTable, AWriteBeyondTheLimitOfAnEntryFailsInThatCallAndKeepsWhatIsThere) {
  mount({"--mount", "path=tmp,source=scratch,write_bytes_limit=10,entries_limit=2", "--mount",
         "path=over,source=host:" + file("host") + ",mode=overlay,write_bytes_limit=5"});
  EXPECT_EQ(0, error_of_append(in_mount("tmp/a"), "123456"));
  EXPECT_EQ(EDQUOT, error_of_append(in_mount("tmp/a"), "78901"));
  EXPECT_EQ("123456", read(in_mount("tmp/a")));
  EXPECT_EQ(0, error_of_append(in_mount("tmp/b"), "7890")) << "up to the limit";
  ASSERT_EQ(0, ::unlink(in_mount("tmp/a").c_str()));
  EXPECT_EQ(EDQUOT, error_of_append(in_mount("tmp/b"), "1")) << "what is removed gives nothing back";
  EXPECT_EQ(EDQUOT, ::mkdir(in_mount("tmp/c").c_str(), 0755) == 0 ? 0 : errno);
  EXPECT_EQ(EDQUOT, ::truncate(in_mount("tmp/b").c_str(), 5) == 0 ? 0 : errno);
  EXPECT_EQ(0, error_of_append(in_mount("over/one.txt"), "4")) << "3 bytes that were there, and 1";
  EXPECT_EQ(0, error_of_append(in_mount("over/one.txt"), "5")) << "they are counted once";
  EXPECT_EQ(EDQUOT, error_of_append(in_mount("over/one.txt"), "6"));
  EXPECT_EQ(EDQUOT, error_of_append(in_mount("over/sub/two.txt"), "x"));
  EXPECT_EQ("one45", read(in_mount("over/one.txt")));
  EXPECT_EQ("two", read(in_mount("over/sub/two.txt")));
  EXPECT_EQ("one", read(file("host") + "/one.txt"));
  refused(2, "a write_bytes_limit of --mount",
          {"mount", mountpoint_, "--io", "writeback", "--mount", "path=t,source=scratch,write_bytes_limit=1"});
}

TEST_F(KeptMountTable, APythonPathComesFirstInTheOrderGiven) {
  shell("mkdir first second && echo 'who = 1' > first/one.py && echo 'who = 2' > second/one.py && "
        "echo 'also = 2' > second/two.py && echo 'last = 3' > three.py",
        {.directory = directory_.path(), .environment = {}, .input = {}});
  const ProcessResult result = escrow(
      {"run", "--inject", "libs/first=" + file("first"), "--inject", "libs/second=" + file("second"), "--python-path",
       "libs/first", "--python-path", "libs/second", "--env", "PYTHONPATH=" + directory_.path(), "--", "python3", "-c",
       "import one, two, three, json; open('told', 'w').write(f'{one.who} {two.also} {three.last}')"});
  ASSERT_EQ(0, result.status) << result.err;
  EXPECT_EQ("1 2 3", content("told"));
  EXPECT_EQ(125, escrow({"run", "--python-path", "a:b", "--", "true"}).status);
  EXPECT_EQ(125, escrow({"run", "--python-path", "../x", "--", "true"}).status);
}

}  // namespace
}  // namespace escrow::test
