// A result that awaits approval, end to end: what a reviewer sees is what is committed, to the byte, whatever goes on
// writing; and what is refused is one sentence that changes nothing.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include "tests/mount/run_fixture.h"

namespace escrow::test {
namespace {

class EscrowApproval : public EscrowRun {
 protected:
  // Runs `script` so that its result waits; the session's id.
  std::string seal(const std::string& script, std::vector<std::string> options = {"--require-approval"}) {
    const ProcessResult result = run(options, script);
    EXPECT_EQ(result.status, 123) << result.err;
    const std::string said = last_line(result.err);
    EXPECT_NE(said.find("awaits approval of its result "), std::string::npos) << said;
    const std::size_t at = said.find("session ");
    return said.substr(at + 8, 16);
  }
  std::string member(const std::string& json, const std::string& name) const {
    const std::string key = "\"" + name + "\":\"";
    const std::size_t at = json.find(key);
    if (at == std::string::npos) return "";
    return json.substr(at + key.size(), json.find('"', at + key.size()) - at - key.size());
  }
  std::string status_of(const std::string& session, const std::string& name) {
    return member(escrow({"status", session, "--json"}).out, name);
  }
  void refused(int status, const std::string& words, const std::vector<std::string>& arguments) {
    const ProcessResult result = escrow(arguments);
    EXPECT_EQ(result.status, status) << arguments[0] << ": " << result.err << result.out;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
  }
  // Another committer, with git alone.
  void push(const std::string& name, const std::string& content) {
    shell("rm -rf '" + file("work") + "' && git clone -q '" + repository_ + "' '" + file("work") + "' && cd '" +
          file("work") + "' && echo '" + content + "' > " + name + " && git add -A && " +
          "git -c user.name=p -c user.email=p@p commit -qm pushed && git push -q origin HEAD:main");
  }
  // The bytes and names that the diff shows are exactly those of the commit on `before`.
  void expect_committed_as_shown(const std::string& shown, const std::string& before) {
    EXPECT_EQ(git("diff --no-renames --binary " + before + " main"),
              git("diff --no-renames --binary " + before + " " + shown));
    EXPECT_EQ(git("rev-parse main^{tree}"), git("rev-parse " + shown + "^{tree}"));
  }
};

TEST_F(EscrowApproval, ExitZeroWaitsForAReviewerAndCommitsNothing) {
  const std::string before = head();
  const ProcessResult result = run({"--require-approval", "--approval-expires", "7d", "--result", file("result.json")},
                                   "echo new > n.txt; echo more >> a.txt; rm dir/b.txt");
  EXPECT_EQ(result.status, 123) << result.err;
  const std::string json = read("result.json"), id = member(json, "session"), sealed = member(json, "result");
  EXPECT_EQ(member(json, "state"), "awaiting_approval");
  EXPECT_NE(json.find("\"run_exit_code\":123"), std::string::npos) << json;
  EXPECT_NE(json.find("\"counts\":{\"added\":1,\"modified\":1,\"deleted\":1}"), std::string::npos) << json;
  const std::string said = last_line(result.err);
  for (const std::string& words : {id, sealed, std::string("escrow diff"), std::string("escrow approve")})
    EXPECT_NE(said.find(words), std::string::npos) << said;
  EXPECT_EQ(head(), before);
  EXPECT_TRUE(no_mount_left());
  EXPECT_EQ(git("rev-parse refs/sessions/" + id), sealed);
  EXPECT_EQ(git("log -1 --format=%P " + sealed), before);
  EXPECT_EQ(status_of(id, "state"), "awaiting_approval");
  EXPECT_EQ(status_of(id, "result"), sealed);
  EXPECT_FALSE(status_of(id, "expires").empty());
  const std::string list = escrow({"sessions"}).out;
  EXPECT_NE(list.find(sealed.substr(0, 12)), std::string::npos) << list;
  EXPECT_EQ(escrow({"diff", id, "--name-status"}).out, "D\tdir/b.txt\nM\ta.txt\nA\tn.txt\n");
  EXPECT_NE(escrow({"diff", id, "--stat"}).out.find("3 files changed"), std::string::npos);
  EXPECT_NE(escrow({"diff", id}).out.find("+new\n"), std::string::npos);
}

TEST_F(EscrowApproval, AnApprovedResultIsCommittedWithItsReviewer) {
  const std::string before = head();
  const std::string id = seal("echo new > n.txt"), sealed = status_of(id, "result");
  EXPECT_EQ(escrow({"verify"}).status, 0);
  const ProcessResult approved = escrow({"approve", id, "--result", sealed.substr(0, 10), "--comment",
                                         "numbers checked", "-m", "Reviewed work"});
  EXPECT_EQ(approved.status, 0) << approved.err;
  EXPECT_EQ(content("n.txt"), "new");
  expect_committed_as_shown(sealed, before);
  EXPECT_EQ(git("log -1 --format=%s main"), "Reviewed work");
  EXPECT_EQ(git("log -1 --format='%(trailers:key=Escrow-Review-Comment,valueonly)' main"), "numbers checked");
  const std::string log = escrow({"log", "-n", "1"}).out;
  EXPECT_NE(log.find("reviewer:"), std::string::npos) << log;
  EXPECT_NE(log.find("numbers checked"), std::string::npos) << log;
  EXPECT_EQ(git("for-each-ref refs/sessions refs/escrow"), "");
  const ProcessResult again = escrow({"approve", id});
  EXPECT_EQ(again.status, 0) << "who comes second gets the first one's answer";
  EXPECT_NE(again.out.find(head()), std::string::npos) << again.out;
  git("fsck --strict");
}

TEST_F(EscrowApproval, OfARejectedResultGcLeavesNothing) {
  const std::string before = head();
  const std::string id = seal("head -c 300000 /dev/urandom > big; echo secret-word > n.txt");
  const std::string sealed = status_of(id, "result");
  const ProcessResult rejected = escrow({"reject", id, "--comment", "wrong model"});
  EXPECT_EQ(rejected.status, 0) << rejected.err;
  EXPECT_EQ(head(), before);
  EXPECT_EQ(shell("find '" + repository_ + "/objects' -name '*.keep'"), "");
  EXPECT_EQ(git("show " + sealed + ":n.txt"), "secret-word") << "what others may rely on is gc's";
  git("config gc.pruneExpire now");
  EXPECT_EQ(escrow({"gc"}).status, 0);
  EXPECT_NE(run_process({"git", "-C", repository_, "cat-file", "-e", sealed}).status, 0);
  EXPECT_EQ(git("for-each-ref refs/sessions refs/escrow"), "");
  EXPECT_EQ(status_of(id, "state"), "rolled_back");
  EXPECT_EQ(status_of(id, "reason"), "rejected");
  EXPECT_EQ(status_of(id, "reviewer"), status_of(id, "committer"));
  EXPECT_EQ(status_of(id, "review_comment"), "wrong model");
  refused(1, "rolled_back", {"approve", id});
  refused(1, "rolled_back", {"reject", id});
  refused(1, "rolled_back", {"approve", id, "--result", sealed});
}

TEST_F(EscrowApproval, APushThatFoundItsContentsInAResultIsWholeWhenThatIsRejectedMeanwhile) {
  const std::string id = seal("echo both-wrote-this > n.txt"), hook = repository_ + "/hooks/update";
  std::ofstream(hook) << "#!/bin/sh\nexec " ESCROW_BINARY " --repo '" << repository_ << "' reject " << id << " >&2\n";
  shell("chmod +x '" + hook + "'");
  push("n.txt", "both-wrote-this");
  EXPECT_EQ(status_of(id, "reason"), "rejected");
  EXPECT_EQ(content("n.txt"), "both-wrote-this");
  EXPECT_EQ(git("fsck --strict --full --no-dangling"), "");
  EXPECT_EQ(escrow({"verify"}).status, 0);
}

TEST_F(EscrowApproval, ARollbackOfAWaitingSessionIsARejectionByRequest) {
  const std::string id = seal("echo new > n.txt");
  EXPECT_EQ(escrow({"rollback", id}).status, 0);
  EXPECT_EQ(status_of(id, "reason"), "requested");
  EXPECT_EQ(git("for-each-ref refs/sessions refs/escrow"), "");
}

TEST_F(EscrowApproval, AnotherIdThanTheSealedOneIsRefused) {
  const std::string before = head();
  const std::string id = seal("echo new > n.txt"), sealed = status_of(id, "result");
  std::string other = sealed;
  other.back() = other.back() == '0' ? '1' : '0';
  refused(1, sealed, {"approve", id, "--result", other});
  refused(1, sealed, {"approve", id, "--result", before});
  refused(2, "is not a result id", {"approve", id, "--result", sealed.substr(0, 6)});
  refused(2, "is not a result id", {"approve", id, "--result", "refs/heads/main"});
  refused(2, "is not a result id", {"approve", id, "--result", "\x1b[31m"});
  EXPECT_EQ(head(), before);
  EXPECT_EQ(status_of(id, "state"), "awaiting_approval");
  EXPECT_EQ(status_of(id, "result"), sealed);
}

TEST_F(EscrowApproval, ASealedSessionRefusesEveryOtherVerbInOneSentence) {
  const std::string id = seal("echo new > n.txt"), sealed = status_of(id, "result");
  shell("mkdir '" + file("empty") + "'");
  refused(1, "awaits approval", {"commit", id});
  refused(1, "awaits approval", {"update", id});
  refused(1, "awaits approval", {"discard", id, "n.txt"});
  refused(1, "awaits approval", {"unmount", id});
  refused(1, "awaits approval", {"rollback", "--keep-result", id});
  refused(1, "awaits approval", {"mount", file("empty"), "--foreground", "--session", id});
  EXPECT_EQ(status_of(id, "result"), sealed);
}

TEST_F(EscrowApproval, BadInputIsOneSentenceAndChangesNothing) {
  const std::string id = seal("echo new > n.txt"), sealed = status_of(id, "result");
  refused(1, "no session", {"approve", "0123456789abcdef"});
  refused(1, "no session", {"reject", "nothing"});
  refused(2, "--comment", {"approve", id, "--comment", "two\nlines"});
  refused(2, "--comment", {"reject", id, "--comment", "\x1b[2J"});
  refused(2, "commit message", {"approve", id, "-m", "bell\a"});
  refused(2, "--state", {"audit", "--state", "open"});
  refused(2, "--since", {"audit", "--since", "yesterday"});
  refused(1, "no session", {"audit", "--session", "nothing"});
  EXPECT_EQ(run({"--require-approval", "--approval-expires", "soon"}, "true").status, 125);
  git("config escrow.main.approvalExpires soon");
  const ProcessResult misconfigured = run({}, "true");
  EXPECT_EQ(misconfigured.status, 125);
  EXPECT_NE(misconfigured.err.find("escrow.main.approvalExpires"), std::string::npos) << misconfigured.err;
  EXPECT_NE(misconfigured.err.find("'soon'"), std::string::npos) << misconfigured.err;
  const ProcessResult first = escrow({"import", file("in")});
  EXPECT_EQ(first.status, 2) << first.err;
  EXPECT_EQ(status_of(id, "result"), sealed);
}

TEST_F(EscrowApproval, WhereOthersMovedTheBranchTheNewResultIsShownAgain) {
  const std::string id = seal("echo new > n.txt"), sealed = status_of(id, "result");
  push("others.txt", "theirs");
  const std::string theirs = head();
  const ProcessResult shown = escrow({"approve", id, "--result", sealed});
  EXPECT_EQ(shown.status, 123) << shown.err;
  const std::string second = status_of(id, "result");
  EXPECT_NE(second, sealed);
  EXPECT_NE(shown.err.find(second), std::string::npos) << shown.err;
  EXPECT_EQ(head(), theirs);
  EXPECT_EQ(git("log -1 --format=%P " + second), theirs);
  EXPECT_EQ(escrow({"diff", id, "--name-status"}).out, "A\tn.txt\n");
  refused(1, second, {"approve", id});
  refused(1, second, {"approve", id, "--result", sealed});
  EXPECT_EQ(head(), theirs);
  EXPECT_EQ(escrow({"approve", id, "--result", second}).status, 0);
  expect_committed_as_shown(second, theirs);
  EXPECT_EQ(content("others.txt"), "theirs");
  git("fsck --strict");
}

TEST_F(EscrowApproval, AConflictIsRefusedWithThePathsAndTheSessionGoesOnWaiting) {
  const std::string id = seal("echo mine > a.txt; echo n > n.txt"), sealed = status_of(id, "result");
  push("a.txt", "theirs");
  const ProcessResult refused_for_now = escrow({"approve", id});
  EXPECT_EQ(refused_for_now.status, 122) << refused_for_now.err;
  EXPECT_NE(refused_for_now.err.find("a.txt"), std::string::npos) << refused_for_now.err;
  EXPECT_EQ(refused_for_now.err.find("n.txt"), std::string::npos) << refused_for_now.err;
  EXPECT_EQ(content("a.txt"), "theirs");
  EXPECT_EQ(status_of(id, "result"), sealed);
  EXPECT_EQ(status_of(id, "state"), "awaiting_approval");
  EXPECT_EQ(escrow({"reject", id}).status, 0);
  git("fsck --strict");
}

// A daemon that escaped with an open descriptor and a mapping, and a process of the outside that holds the mount:
// both write before, through the seal, and after it.
TEST_F(EscrowApproval, AWriterThatGoesOnThroughAllOfItGetsNoByteIn) {
  const std::string before = head();
  shell("mkdir '" + file("mnt") + "'");
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> written = 0, refused_writes = 0;
  BackgroundRun background(
      run_command_line({"--require-approval", "--mountpoint", file("mnt")},
                       "python3 - <<'EOF'\n"
                       "import mmap, os, time\n"
                       "with open('mapped', 'wb') as f: f.write(b'-' * 8192)\n"
                       "open('held', 'wb').close()\n"
                       "ready, told = os.pipe()\n"
                       "if os.fork() == 0:\n"
                       "    os.setsid()\n"
                       "    if os.fork() > 0: os._exit(0)\n"
                       "    fd = os.open('mapped', os.O_RDWR)\n"
                       "    log = os.open('log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
                       "    memory = mmap.mmap(fd, 8192)\n"
                       "    os.write(log, b'0\\n')\n"
                       "    os.write(told, b'x')\n"
                       "    n = 0\n"
                       "    while True:\n"
                       "        n += 1\n"
                       "        memory[0:8] = memory[4096:4104] = b'%08d' % n\n"
                       "        os.write(log, b'%d\\n' % n)\n"
                       "        open('/dev/null').close()\n"
                       "os.read(ready, 1)\n"
                       "EOF\n"
                       "touch " + file("up") + "; while [ ! -e " + file("go") + " ]; do sleep 0.01; done; exit 0"),
      file("err"));
  ASSERT_TRUE(eventually([&] { return has("up"); })) << read("err");
  const int fd = ::open(file("mnt/held").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  std::thread outside([&] {
    while (!stop) {
      ++(::write(fd, "outside\n", 8) == 8 ? written : refused_writes);
    }
  });
  ASSERT_TRUE(eventually([&] { return written > 10; }));
  shell("touch '" + file("go") + "'");
  EXPECT_EQ(background.wait(), 123) << read("err");
  // Once it has counted one that was refused, it has counted all that were taken before.
  EXPECT_TRUE(eventually([&] { return refused_writes > 0; }));
  const std::uint64_t acknowledged = written;
  const std::string said = last_line(read("err"));
  const std::string id = said.substr(said.find("session ") + 8, 16), sealed = status_of(id, "result");
  const std::string shown = escrow({"diff", id}).out;
  ::usleep(300'000);
  EXPECT_EQ(escrow({"diff", id}).out, shown);
  const ProcessResult approved = escrow({"approve", id, "--result", sealed});
  EXPECT_EQ(approved.status, 0) << approved.err;
  ::usleep(100'000);
  EXPECT_EQ(written, acknowledged) << "no write was taken after the seal";
  stop = true;
  outside.join();
  ::close(fd);
  expect_committed_as_shown(sealed, before);
  EXPECT_NE(shown.find("outside"), std::string::npos);
  EXPECT_EQ(git("show main:held | wc -l"), std::to_string(acknowledged)) << "and every one before it is in";
  EXPECT_EQ(git("show main:log | awk '$1 != NR - 1 {print \"gap\"}' | head -1"), "");
  EXPECT_EQ(git("show main:mapped | wc -c"), "8192");
  EXPECT_TRUE(eventually([&] { return no_mount_left(); }));
}

TEST_F(EscrowApproval, ACommitByHandIsSealedAndItsMountGoesAway) {
  shell("mkdir '" + file("mnt") + "'");
  const std::string id = shell("'" + std::string(ESCROW_BINARY) + "' --repo '" + repository_ +
                               "' mount --require-approval '" + file("mnt") + "'");
  shell("echo by-hand > '" + file("mnt/n.txt") + "'");
  const int fd = ::open(file("mnt/n.txt").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const std::string before = head();
  const ProcessResult sealed = escrow({"commit", id, "-m", "By hand"});
  EXPECT_EQ(sealed.status, 123) << sealed.err;
  EXPECT_NE(sealed.out.find(status_of(id, "result")), std::string::npos) << sealed.out;
  EXPECT_LT(::write(fd, "late\n", 5), 0) << "the seal holds for who has the file open";
  ::close(fd);
  EXPECT_TRUE(eventually([&] { return no_mount_left(); }));
  EXPECT_EQ(head(), before);
  EXPECT_EQ(status_of(id, "attachment"), "none");
  EXPECT_EQ(escrow({"approve", id}).status, 0);
  EXPECT_EQ(content("n.txt"), "by-hand");
  EXPECT_EQ(git("log -1 --format=%s main"), "By hand");
}

TEST_F(EscrowApproval, ARuleOfTheBranchHoldsForRunsMountsAndImportsAndCannotBeSwitchedOff) {
  git("config escrow.main.requireApproval true");
  git("config escrow.main.approvalExpires 1h");
  const std::string before = head();
  const std::string id = seal("echo new > n.txt", {"--approval-expires", "7d"});
  EXPECT_NE(escrow({"status", id, "--json"}).out.find("\"approval_expires_s\":3600"), std::string::npos);
  shell("echo c > '" + file("in/c.txt") + "'");
  const ProcessResult imported = escrow({"import", file("in"), "--json"});
  EXPECT_EQ(imported.status, 123) << imported.err;
  EXPECT_EQ(member(imported.out, "state"), "awaiting_approval");
  EXPECT_EQ(head(), before);
  EXPECT_EQ(escrow({"approve", member(imported.out, "session")}).status, 0);
  EXPECT_EQ(content("c.txt"), "c");
  EXPECT_EQ(run({"--require-approval=false"}, "echo x > x.txt").status, 123) << "nothing switches it off";
  EXPECT_EQ(run("true").status, 0) << "no change needs no approval";
}

TEST_F(EscrowApproval, AResultThatNobodyApprovedInTimeIsRolledBackByTheNextCommand) {
  const std::string id = seal("echo new > n.txt", {"--require-approval", "--approval-expires", "5s"});
  ::usleep(5'300'000);
  refused(1, "rolled_back", {"approve", id});
  EXPECT_EQ(status_of(id, "reason"), "expired");
  EXPECT_EQ(shell("find '" + repository_ + "/objects' -name '*.keep'"), "") << "gc may take its objects";
  EXPECT_EQ(git("for-each-ref refs/sessions refs/escrow"), "");
}

TEST_F(EscrowApproval, OfTwoReviewersAtOnceOneDecidesAndTheOtherIsTold) {
  for (int round = 0; round < 3; ++round) {
    const std::string id = seal("echo round-" + std::to_string(round) + " > n.txt");
    const std::string before = head();
    ProcessResult approved, rejected;
    std::thread reviewer([&] { approved = escrow({"approve", id}); });
    rejected = escrow({"reject", id});
    reviewer.join();
    EXPECT_EQ((approved.status == 0) + (rejected.status == 0), 1) << approved.err << rejected.err;
    EXPECT_EQ(approved.status == 0, head() != before);
    EXPECT_EQ(status_of(id, "state"), approved.status == 0 ? "committed" : "rolled_back");
    git("fsck --strict");
  }
}

TEST_F(EscrowApproval, AnAuditShowsWhatLeftNoCommitToo) {
  const std::string weird = "\xff\nname\x1b[31m";
  ASSERT_EQ(run_process({ESCROW_BINARY, "--repo", repository_, "run", "--trigger", "nightly", "--", "sh",
                         "-c", "exit 3", weird})
                .status,
            3);
  EXPECT_EQ(run({"--timeout", "2s"}, "exec sleep 1000").status, 124);
  const std::string rejected = seal("echo new > n.txt; mkdir d; echo x > d/f");
  EXPECT_EQ(escrow({"reject", rejected, "--comment", "no"}).status, 0);
  const std::string waiting = seal("echo new > w.txt");
  const std::string table = escrow({"audit"}).out;
  for (const std::string& words : {std::string("exit_status 3"), std::string("timed_out 143"), std::string("rejected"),
                                   std::string("+2 ~0 -0"), std::string("awaiting_approval"), rejected, waiting,
                                   std::string("\\377\\nname\\033[31m")}) {
    EXPECT_NE(table.find(words), std::string::npos) << words << " is not in\n" << table;
  }
  EXPECT_EQ(table.find('\x1b'), std::string::npos);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 6) << "a line each\n" << table;
  const std::string one = escrow({"audit", "--session", rejected}).out;
  for (const char* words : {"comment:", "no", "awaiting_approval", "sealed as", "rolled_back, rejected", "2 added"})
    EXPECT_NE(one.find(words), std::string::npos) << one;
  const std::string json = escrow({"audit", "--json", "--state", "rolled_back"}).out;
  EXPECT_NE(json.find("\"argument_base64\""), std::string::npos) << "the name's very bytes";
  EXPECT_NE(json.find("\"trigger\":\"nightly\""), std::string::npos);
  EXPECT_NE(json.find("\"denied_calls\":0"), std::string::npos);
  EXPECT_EQ(json.find(waiting), std::string::npos);
  shell("python3 -c 'import json, sys; assert len(json.load(sys.stdin)) == 3'",
        {.directory = {}, .environment = {}, .input = json});
  EXPECT_EQ(escrow({"audit", "--branch", "nowhere"}).out, "No session that has ended or awaits approval matches.\n");
}

TEST_F(EscrowApproval, GcForgetsRecordsWhoseRetentionHasPassedAndNoOthers) {
  EXPECT_EQ(run({"--keep-on-failure"}, "echo kept > k.txt; exit 1").status, 1);
  const std::string waiting = seal("echo new > n.txt");
  EXPECT_NE(escrow({"gc", "--json"}).out.find("\"sessions_forgotten\":0"), std::string::npos);
  const auto results = [&] { return git("for-each-ref --format='%(refname)' refs/sessions"); };
  EXPECT_NE(results().find('\n'), std::string::npos) << "two";
  git("config escrow.auditRetention 1s");
  ::usleep(2'200'000);
  const ProcessResult collected = escrow({"gc", "--json"});
  EXPECT_NE(collected.out.find("\"sessions_forgotten\":2"), std::string::npos) << collected.out << collected.err;
  const std::string table = escrow({"audit"}).out;
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 2) << table;
  EXPECT_NE(table.find(waiting), std::string::npos);
  EXPECT_EQ(results(), "refs/sessions/" + waiting) << "what a forgotten session kept goes with its record";
  EXPECT_EQ(escrow({"approve", waiting}).status, 0);
  git("fsck --strict");
}

}  // namespace
}  // namespace escrow::test
