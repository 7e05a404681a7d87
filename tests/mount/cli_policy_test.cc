// Policies by the command line: what is refused before anything is mounted, what is refused inside, what is remembered.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/mount/cli_fixture.h"

namespace escrow::test {
namespace {

constexpr const char* kNoWritingInDir =
    R"({"default": "allow", "rules": [{"effect": "deny", "actions": ["write", "create", "delete"],
                                       "paths": ["dir/"]}]})";
constexpr const char* kNoReadingOfA =
    R"({"default": "allow", "rules": [{"effect": "deny", "actions": ["read"], "paths": ["/a.txt"]}]})";

class EscrowPolicy : public EscrowCommands {
 protected:
  std::string policy(const std::string& name, std::string_view text) {
    write(file(name), text);
    return file(name);
  }
  // The errno of opening it, 0 when it opens.
  static int open_error(const std::string& path, int flags) {
    const int opened = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
    if (opened < 0) return errno;
    ::close(opened);
    return 0;
  }
  std::string newest_session() {
    const std::string all = done({"sessions", "--json"});
    const std::size_t at = all.rfind("\"session\":\"");
    return all.substr(at + 11, 16);
  }
};

TEST_F(EscrowPolicy, TestSaysByItsStatusWhetherAnActionIsAllowed) {
  const std::string one = policy("one.json", kNoWritingInDir), two = policy("two.json", kNoReadingOfA);
  EXPECT_EQ(done({"policy", "test", one, two, "--action", "read", "--path", "dir/b.txt"}),
            "allowed by policy 1, default: allow");
  const ProcessResult denied = escrow({"policy", "test", one, two, "--action", "write", "--path", "/dir/b.txt"});
  EXPECT_EQ(denied.status, 1);
  EXPECT_EQ(denied.out, "denied by policy 1, rule 1: deny dir/\n");
  EXPECT_EQ(escrow({"policy", "test", one, two, "--action", "read", "--path", "a.txt"}).status, 1);
  EXPECT_EQ(escrow({"policy", "test", one, "--action", "create", "--path", "dir"}).status, 0);
  EXPECT_EQ(escrow({"policy", "test", one, "--action", "create", "--path", "dir", "--directory"}).status, 1);
  const std::string json = escrow({"policy", "test", one, "--action", "write", "--path", "dir/x", "--json"}).out;
  for (const char* member :
       {"\"allowed\":false", "\"policy\":1", "\"rule\":1", "\"pattern\":\"dir/\"", "\"path\":\"dir/x\""})
    EXPECT_NE(json.find(member), std::string::npos) << json;
  refused(2, "wriet", {"policy", "test", one, "--action", "wriet", "--path", "a"});
}

TEST_F(EscrowPolicy, ExplainShowsEachActionAndWhatDecidesIt) {
  const std::string text = done({"policy", "explain", policy("p.json", kNoWritingInDir), "--path", "dir/b.txt"});
  EXPECT_NE(text.find("write     denied   policy 1, rule 1: deny dir/"), std::string::npos) << text;
  EXPECT_NE(text.find("metadata  allowed  policy 1, default: allow"), std::string::npos) << text;
  const std::string json = done({"policy", "explain", file("p.json"), "--path", "dir", "--directory", "--json"});
  EXPECT_NE(json.find("{\"action\":\"delete\",\"allowed\":false"), std::string::npos) << json;
}

TEST_F(EscrowPolicy, AMalformedPolicyIsRefusedWithItsLineBeforeAnythingIsMounted) {
  const std::string bad = policy("bad.json", "{\"default\": \"allow\",\n \"rules\": [{\"efect\": \"deny\"}]}");
  const std::string before = done({"sessions", "--json"});
  refused(2, "bad.json:2:13", {"mount", mountpoint_, "--policy", bad});
  refused(2, "nowhere.json", {"mount", mountpoint_, "--policy", file("nowhere.json")});
  refused(2, "--opens none", {"mount", mountpoint_, "--policy", policy("p.json", kNoReadingOfA), "--opens", "none"});
  refused(2, "--foreground", {"mount", mountpoint_, "--trace", "-"});
  refused(2, "no-such", {"mount", mountpoint_, "--trace", file("no-such/trace")});
  refused(125, "bad.json:2:13", {"run", "--policy", bad, "--", "true"});
  refused(125, "no-such", {"run", "--trace", file("no-such/trace"), "--", "true"});
  refused(2, "bad.json:2:13", {"policy", "explain", bad, "--path", "a"});
  EXPECT_EQ(done({"sessions", "--json"}), before);
  EXPECT_FALSE(is_mounted());
}

TEST_F(EscrowPolicy, HoldsInARunAndWhatWasAllowedIsCommitted) {
  const std::string trace = file("trace");
  const ProcessResult run =
      escrow({"run", "--policy", policy("p.json", kNoWritingInDir), "--trace", trace, "--committer", "agent:x", "--",
              "sh", "-c", "echo new > allowed; echo no > dir/b.txt; rm dir/b.txt; mkdir dir/x; cat dir/b.txt; true"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(content("allowed"), "new");
  EXPECT_EQ(content("dir/b.txt"), run.out.substr(0, run.out.size() - 1)) << "reading is allowed";
  const std::string lines = read(trace);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3) << lines;
  for (const char* member : {"\"principal\":\"agent:x\"", "\"operation\":\"unlink\"", "\"action\":\"delete\"",
                             "\"path\":\"dir/b.txt\"", "\"rule\":\"policy 1, rule 1: deny dir/\"", "\"time\":\"20"})
    EXPECT_NE(lines.find(member), std::string::npos) << lines;
  struct stat values {};
  ASSERT_EQ(::stat(trace.c_str(), &values), 0);
  EXPECT_EQ(values.st_mode & 0777, 0600u);
}

TEST_F(EscrowPolicy, DenialsAreCountedWithTheSessionAlsoAfterItEnded) {
  const ProcessResult run = escrow({"run", "--policy", policy("p.json", kNoWritingInDir), "--", "sh", "-c",
                                    "for i in 1 2 3; do echo no > dir/b.txt; done; rm dir/b.txt; exit 3"});
  EXPECT_EQ(run.status, 3) << run.err;
  const std::string id = newest_session();
  EXPECT_NE(done({"status", id}).find("4 calls, 2 kinds"), std::string::npos) << done({"status", id});
  EXPECT_NE(done({"status", id, "--json"}).find("\"denials\":{\"count\":4,\"kinds\":2}"), std::string::npos);
}

TEST_F(EscrowPolicy, StatusOfALiveSessionCountsAtOnce) {
  const std::string id = mount({"--policy", policy("p.json", kNoReadingOfA)});
  EXPECT_EQ(open_error(in_mount("a.txt"), O_RDONLY), EACCES);
  EXPECT_NE(done({"status", id, "--json"}).find("\"denials\":{\"count\":1,"), std::string::npos);
  EXPECT_NE(done({"status", id}).find("a policy is asked at each open"), std::string::npos);
  done({"rollback", id});
}

TEST_F(EscrowPolicy, WhatHidesAllThatItDeniesIsAskedForNoOpenAndRefusesAllTheSame) {
  const std::string id = mount({"--policy", policy("p.json", R"({"default": "allow", "rules": [
      {"effect": "deny", "actions": ["read", "list", "write", "create", "delete", "rename", "metadata"],
       "paths": ["/a.txt", "dir/"]}]})")});
  EXPECT_NE(done({"status", id}).find("opens none (a policy is asked at each listing of a directory)"),
            std::string::npos);
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(open_error(in_mount("a.txt"), O_RDONLY), EACCES);
    EXPECT_EQ(open_error(in_mount("a.txt"), O_WRONLY | O_CREAT), EACCES);
    EXPECT_EQ(open_error(in_mount("dir"), O_RDONLY | O_DIRECTORY), EACCES);
    EXPECT_EQ(open_error(in_mount("dir/b.txt"), O_RDONLY), EACCES);
    EXPECT_EQ(open_error(in_mount("new"), O_WRONLY | O_CREAT), 0);
    EXPECT_EQ(::rename(in_mount("new").c_str(), in_mount("dir/new").c_str()), -1);
    EXPECT_EQ(errno, EACCES);
  }
  EXPECT_NE(done({"status", id, "--json"}).find("\"denials\":{\"count\":10,"), std::string::npos)
      << done({"status", id, "--json"});
  done({"rollback", id});
}

TEST_F(EscrowPolicy, ASessionKeepsItsPoliciesWhenItIsMountedAgain) {
  const std::string one = policy("one.json", kNoWritingInDir), two = policy("two.json", kNoReadingOfA);
  const std::string id = mount({"--policy", one, "--policy", two});
  const auto expect_both = [&] {
    EXPECT_EQ(open_error(in_mount("a.txt"), O_RDONLY), EACCES);
    EXPECT_EQ(open_error(in_mount("dir/b.txt"), O_WRONLY), EACCES);
    EXPECT_EQ(open_error(in_mount("dir/b.txt"), O_RDONLY), 0);
    EXPECT_EQ(open_error(in_mount("dir/new"), O_WRONLY | O_CREAT), EACCES);
    EXPECT_EQ(open_error(in_mount("new"), O_WRONLY | O_CREAT), 0);
  };
  expect_both();
  done({"unmount", id});
  ::unlink(one.c_str());
  ::unlink(two.c_str());
  refused(2, "--session", {"mount", mountpoint_, "--session", id, "--policy", policy("three.json", kNoReadingOfA)});
  mount({"--session", id});
  expect_both();
  done({"commit", id});
  EXPECT_EQ(content("new"), "");
}

TEST_F(EscrowPolicy, ACommitByHandBringsInWhatIsMappedInAFileThatMayNotBeRead) {
  const std::string id = mount({"--policy", policy("p.json", R"({"default": "allow", "rules": [
      {"effect": "deny", "actions": ["read", "list"], "paths": ["/"]}]})")});
  EXPECT_EQ(open_error(in_mount(""), O_RDONLY | O_DIRECTORY), EACCES);
  const int made = ::open(in_mount("made").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_GE(made, 0);
  ASSERT_EQ(::ftruncate(made, 5), 0);
  void* const memory = ::mmap(nullptr, 5, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memcpy(memory, "bytes", 5);
  EXPECT_EQ(open_error(in_mount("made"), O_RDONLY), EACCES);
  done({"commit", id});
  EXPECT_EQ(content("made"), "bytes");
  ::munmap(memory, 5);
  ::close(made);
  EXPECT_NE(done({"status", id}).find("2 calls, 2 kinds"), std::string::npos) << "Escrow's own opens are not denied";
}

TEST_F(EscrowPolicy, PathsAreThoseOfTheRepositoryUnderAPrefix) {
  mount({"--path-prefix", "dir", "--policy", policy("p.json", R"({"default": "allow", "rules": [
      {"effect": "deny", "actions": ["write"], "paths": ["/dir/b.txt"]},
      {"effect": "deny", "actions": ["write"], "paths": ["/sub/c.txt"]}]})")});
  EXPECT_EQ(open_error(in_mount("b.txt"), O_WRONLY), EACCES);
  EXPECT_EQ(open_error(in_mount("sub/c.txt"), O_WRONLY), 0);
}

TEST_F(EscrowPolicy, AStormOfDenialsSlowsNobodyAndFillsNothing) {
  const ProcessResult run = escrow(
      {"run", "--policy", policy("p.json", kNoWritingInDir), "--trace", file("trace"), "--", "python3", "-c",
       "import os\n"
       "n = 0\n"
       "for i in range(20000):\n"
       "    try: os.open('dir/%d' % i, os.O_CREAT | os.O_WRONLY)\n"
       "    except PermissionError: n += 1\n"
       "assert n == 20000, n\n"});
  EXPECT_EQ(run.status, 0) << run.err;
  const std::string status = done({"status", newest_session(), "--json"});
  EXPECT_NE(status.find("\"denials\":{\"count\":20000,\"kinds\":1000}"), std::string::npos) << status;
  struct stat values {};
  ASSERT_EQ(::stat(file("trace").c_str(), &values), 0);
  EXPECT_LT(values.st_size, 13'000 * 260);
  EXPECT_NE(read(file("trace")).find("left_out"), std::string::npos);
}

// Escrow makes the kernel look up what an update brought; that is nobody's attempt, and shows nobody what is hidden.
TEST_F(EscrowPolicy, AnUpdateThatBringsHiddenNamesIsNoDenialAndShowsNone) {
  const std::string hides =
      R"({"default": "allow", "rules": [{"effect": "deny", "paths": ["dir/secret*"], "actions":
          ["read", "list", "create", "write", "delete", "rename", "metadata"]}]})";
  const std::string id = mount({"--policy", policy("hide.json", hides)});
  EXPECT_EQ(open_error(in_mount("dir/secret"), O_RDONLY), EACCES);
  EXPECT_EQ(read(in_mount("dir/b.txt")), "b\n");
  EXPECT_NE(done({"status", id, "--json"}).find("\"denials\":{\"count\":1,"), std::string::npos);
  write(file("in/dir/secret"), "hidden");
  write(file("in/dir/b.txt"), "shown");
  done({"import", file("in")});
  done({"update", id});
  EXPECT_NE(done({"status", id, "--json"}).find("\"denials\":{\"count\":1,"), std::string::npos);
  EXPECT_EQ(read(in_mount("dir/b.txt")), "shown");
  EXPECT_EQ(open_error(in_mount("dir/secret"), O_RDONLY), EACCES);
  EXPECT_EQ(open_error(in_mount("dir/secret-too"), O_RDONLY), EACCES);
  EXPECT_NE(shell("ls '" + in_mount("dir") + "'").find("b.txt"), std::string::npos);
  EXPECT_EQ(shell("ls '" + in_mount("dir") + "'").find("secret"), std::string::npos);
}

}  // namespace
}  // namespace escrow::test
