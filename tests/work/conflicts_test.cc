// Two people change the same files at once, and each conflict is led to its end with what Escrow says at each step.
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/mount/cli_fixture.h"
#include "tests/work/project_fixture.h"

namespace escrow::test {
namespace {

class Conflicts : public EscrowCommands {
 protected:
  void TearDown() override {
    ::umount2(mountpoint_.c_str(), MNT_FORCE | MNT_DETACH);
    EscrowCommands::TearDown();
  }

  ProcessResult run(const std::string& script, const std::vector<std::string>& options = {}) const {
    std::vector<std::string> line{"run"};
    line.insert(line.end(), options.begin(), options.end());
    line.insert(line.end(), {"--", "sh", "-c", script});
    return escrow(line);
  }

  // The id of a run that did `mine` while another run, which ended first, did `theirs`.
  std::string failed_run(const std::string& mine, const std::string& theirs) const {
    write(file("theirs.sh"), theirs);
    const ProcessResult result = run(mine + "; '" ESCROW_BINARY "' --repo '" + repository_ + "' run -- sh '" +
                                     file("theirs.sh") + "' 2> '" + file("inner") + "'");
    EXPECT_EQ(result.status, 122) << result.err << read(file("inner"));
    const std::string words = "`escrow resume ";
    const std::size_t at = result.err.find(words);
    EXPECT_NE(at, std::string::npos) << result.err;
    return at == std::string::npos ? "" : result.err.substr(at + words.size(), 16);
  }

  std::string resume(const std::string& older, bool mounted = false) const {
    return done(mounted ? std::vector<std::string>{"resume", older, mountpoint_}
                        : std::vector<std::string>{"resume", older});
  }

  // SIGKILL to the process that hosts the session's mount; its mount goes with it.
  void kill_host_of(const std::string& session) const {
    const int client = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = repository_ + "/escrow/sessions/" + session + "/control.sock";
    ASSERT_LT(path.size(), sizeof address.sun_path);
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    ucred peer{};
    socklen_t size = sizeof peer;
    const bool is_known = ::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                          ::getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    ::close(client);
    ASSERT_TRUE(is_known);
    ::kill(peer.pid, SIGKILL);
    EXPECT_TRUE(eventually([&] { return status_of(session, "attachment") != "mounted"; }));
    ::umount2(mountpoint_.c_str(), MNT_DETACH);
  }

  // The paths that `escrow resolve` lists, in its order.
  std::vector<std::string> unresolved(const std::string& session) const {
    const std::string json = done({"resolve", session, "--json"});
    std::vector<std::string> paths;
    const std::string key = "{\"path\":\"";
    for (std::size_t at = json.find(key); at != std::string::npos; at = json.find(key, at + 1))
      paths.push_back(json.substr(at + key.size(), json.find('"', at + key.size()) - at - key.size()));
    return paths;
  }

  void expect_sound() const {
    EXPECT_EQ(escrow({"verify"}).status, 0) << escrow({"verify"}).out;
    EXPECT_EQ(git("fsck --strict --no-dangling 2>&1"), "");
  }

  using Paths = std::vector<std::string>;
};

TEST_F(Conflicts, ARunThatConflictedIsResumedResolvedAndCommitted) {
  const std::string older = failed_run("echo mine | tee a.txt dir/b.txt dir/sub/c.txt > new.txt; echo kept > more.txt",
                                       "echo theirs | tee a.txt dir/b.txt > dir/sub/c.txt; echo t > theirs.txt");
  for (const char* command : {"diff", "update", "commit"}) {
    const ProcessResult told = escrow({command, older});
    EXPECT_NE(told.status, 0) << command;
    EXPECT_TRUE(has(told.err, "`escrow resume " + older + "`")) << command << ": " << told.err;
  }

  const ProcessResult resumed = escrow({"resume", older, mountpoint_});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  const std::string id = resumed.out.substr(0, 16);
  EXPECT_EQ(resumed.out, id + "\n");
  EXPECT_TRUE(has(resumed.err, "  dir/b.txt: the session modified it, the branch modified it\n")) << resumed.err;
  EXPECT_FALSE(has(resumed.err, "more.txt")) << "it does not conflict";
  EXPECT_EQ(read(in_mount("a.txt")), "mine\n");
  EXPECT_EQ(read(in_mount("more.txt")), "kept\n");
  EXPECT_EQ(read(in_mount("theirs.txt")), "t\n") << "it is on the new head";
  EXPECT_TRUE(has(done({"status", older}), id)) << "the failed session says what it was resumed as";
  EXPECT_EQ(status_of(id, "resumes"), older);
  EXPECT_TRUE(has(done({"audit", "--session", older}), "resumed as session " + id));

  // Both versions are at hand.
  EXPECT_EQ(unresolved(id), (Paths{"a.txt", "dir/b.txt", "dir/sub/c.txt"}));
  const std::string list = done({"resolve", id});
  for (const char* which : {"main", "main~1", "refs/sessions"}) {
    const std::string of = which == std::string("refs/sessions") ? "refs/sessions/" + older : which;
    EXPECT_TRUE(has(list, git("rev-parse " + of + ":a.txt"))) << of << ": " << list;
  }
  EXPECT_TRUE(has(done({"diff", id}), "-theirs\n+mine"));

  const ProcessResult refused_commit = escrow({"commit", id});
  EXPECT_EQ(refused_commit.status, 122);
  EXPECT_TRUE(has(refused_commit.err, "dir/sub/c.txt") && has(refused_commit.err, "escrow resolve " + id));
  refused(1, "nothing conflicts there", {"resolve", id, "more.txt", "--mine"});
  refused(2, "--mine, --theirs or --merged", {"resolve", id, "a.txt"});
  refused(2, "name the paths", {"resolve", id, "--theirs"});

  EXPECT_TRUE(has(done({"resolve", id, "a.txt", "--mine"}), "2 paths left:\n  dir/b.txt\n  dir/sub/c.txt"));
  done({"resolve", id, "dir/b.txt", "--theirs"});
  EXPECT_EQ(read(in_mount("dir/b.txt")), "theirs\n") << "the mount shows it at once";
  write(in_mount("dir/sub/c.txt"), "mine and theirs\n");
  EXPECT_TRUE(has(done({"resolve", id, "dir", "--merged"}), "`escrow commit " + id + "` commits it"));
  done({"commit", id});
  EXPECT_EQ(content("a.txt") + content("dir/b.txt") + content("dir/sub/c.txt"), "minetheirsmine and theirs");
  EXPECT_EQ(content("more.txt") + content("theirs.txt") + content("new.txt"), "kepttmine");
  expect_sound();
}

// What came of older content cannot be settled path by path.
TEST_F(Conflicts, WhatASerializableSessionHadReadIsNamedAndForAPersonToJudge) {
  const ProcessResult ran = run("cat a.txt > own; '" ESCROW_BINARY "' --repo '" + repository_ +
                                    "' run -- sh -c 'echo theirs > a.txt' 2> '" + file("inner") + "'",
                                {"--isolation", "serializable"});
  EXPECT_EQ(ran.status, 122) << ran.err;
  const std::string words = "`escrow resume ";
  ASSERT_TRUE(has(ran.err, words)) << ran.err;
  const std::string older = ran.err.substr(ran.err.find(words) + words.size(), 16);
  const ProcessResult resumed = escrow({"resume", older});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_TRUE(has(resumed.err, "Session " + older + " was serializable, and the new one is not")) << resumed.err;
  EXPECT_TRUE(has(resumed.err, "what it had read or changed: a.txt")) << resumed.err;

  const std::string session = mount({"--isolation", "serializable"});
  write(in_mount("copy"), read(in_mount("a.txt")));
  EXPECT_EQ(run("echo again > a.txt").status, 0);
  const ProcessResult refused = escrow({"commit", session});
  EXPECT_EQ(refused.status, 122);
  EXPECT_TRUE(has(refused.err, "a.txt") && has(refused.err, "what the session had read")) << refused.err;
  EXPECT_FALSE(has(refused.err, "escrow resolve")) << "it leads nowhere: " << refused.err;
  done({"rollback", session, "--keep-result"});
  const ProcessResult judged = escrow({"resume", session});
  EXPECT_TRUE(has(judged.err, "is for you to judge")) << judged.err;
  done({"commit", judged.out.substr(0, 16)});
  EXPECT_EQ(content("copy"), "theirs");
}

TEST_F(Conflicts, AResultIsResumedTwiceAndOutlivesTheOlderSession) {
  const std::string older = failed_run("echo mine > a.txt; rm dir/b.txt", "echo theirs | tee a.txt > dir/b.txt");
  const std::string first = resume(older), second = resume(older);
  EXPECT_TRUE(has(escrow({"resume", older}).err, "was resumed before, as " + second));
  EXPECT_EQ(unresolved(first), (Paths{"a.txt", "dir/b.txt"}));
  EXPECT_EQ(unresolved(second), unresolved(first));
  // The older session's record goes with its result; what was resumed keeps what it needs.
  git("update-ref -d refs/sessions/" + older);
  git("config gc.pruneExpire now");
  done({"gc"});
  refused(1, "nothing of it was kept", {"resume", older});
  done({"resolve", first, "a.txt", "dir/b.txt", "--mine"});
  done({"commit", first});
  EXPECT_EQ(content("a.txt"), "mine");
  EXPECT_EQ(git("ls-tree -r --name-only main dir/b.txt"), "");
  done({"resolve", second, "a.txt", "dir", "--theirs"});
  EXPECT_TRUE(has(done({"commit", second}), "no changes"));
  EXPECT_EQ(content("a.txt"), "mine");
  expect_sound();
}

TEST_F(Conflicts, DeletedFilesAndFilesAgainstDirectoriesAreSettled) {
  const std::string older = failed_run("rm dir/b.txt a.txt; echo mine > dir/sub/c.txt; mkdir a.txt; echo m > a.txt/x; "
                                       "echo m > f",
                                       "echo theirs | tee a.txt > dir/b.txt; rm -r dir/sub; mkdir f; echo t > f/y");
  for (const char* how : {"--mine", "--theirs"}) {
    const std::string id = resume(older, true);
    EXPECT_EQ(unresolved(id), (Paths{"a.txt", "dir/b.txt", "dir/sub/c.txt", "f"}));
    EXPECT_EQ(read(in_mount("a.txt/x")) + read(in_mount("f")), "m\nm\n");
    EXPECT_TRUE(has(done({"resolve", id}), "theirs nothing")) << "what the branch deleted";
    done({"resolve", id, "a.txt", "dir", "f", how});
    const std::string shown = shell("cd '" + mountpoint_ + "' && find . -type f -exec cat {} + | sort | tr -d '\\n'");
    EXPECT_EQ(shown, how == std::string("--mine") ? "mmmine" : "ttheirstheirs") << how;
    if (how == std::string("--mine")) done({"rollback", id});
    else EXPECT_TRUE(has(done({"commit", id}), "no changes"));
    EXPECT_TRUE(eventually([&] { return !is_mounted(); }));
  }
  const std::string id = resume(older);
  done({"resolve", id, "a.txt", "dir", "f", "--mine"});
  done({"commit", id});
  EXPECT_EQ(git("ls-tree -r --name-only main"), "a.txt/x\ndir/sub/c.txt\nf");
  expect_sound();
}

TEST_F(Conflicts, ASessionByHandThatMeetsAConflictSettlesItWhereItIs) {
  const std::string id = mount();
  write(in_mount("a.txt"), "mine\n");
  write(in_mount("dir/b.txt"), "mine\n");
  write(in_mount("new.txt"), "mine\n");
  EXPECT_TRUE(has(done({"status", id, "--json"}), "\"would_conflict\":[]"));
  EXPECT_FALSE(has(done({"status", id}), "conflict"));
  ASSERT_EQ(run("echo theirs | tee a.txt dir/b.txt > dir/sub/c.txt").status, 0);
  // Known before the commit is tried, and nothing has changed.
  EXPECT_TRUE(has(done({"status", id}), "a commit would conflict now (escrow resolve " + id + "):\n"
                                        "  a.txt: the session modified it, the branch modified it\n"
                                        "  dir/b.txt: the session modified it, the branch modified it"));
  EXPECT_TRUE(has(done({"status", id, "--json"}),
                  R"("would_conflict":[{"path":"a.txt","ours":"modified","theirs":"modified"},)"));
  EXPECT_EQ(read(in_mount("dir/sub/c.txt")), "c\n");
  const ProcessResult conflict = escrow({"commit", id});
  EXPECT_EQ(conflict.status, 122);
  EXPECT_TRUE(has(conflict.err, "`escrow resolve " + id + " PATH... --mine|--theirs|--merged`")) << conflict.err;
  EXPECT_EQ(unresolved(id), (Paths{"a.txt", "dir/b.txt"}));
  EXPECT_EQ(read(in_mount("dir/sub/c.txt")), "c\n") << "listing changes nothing";
  const std::string said = done({"resolve", id, "a.txt", "--mine"});
  EXPECT_TRUE(has(said, "1 path came from the new head") && has(said, "1 path left:\n  dir/b.txt")) << said;
  EXPECT_EQ(read(in_mount("dir/sub/c.txt")), "theirs\n");
  EXPECT_EQ(read(in_mount("dir/b.txt")), "mine\n");
  EXPECT_EQ(escrow({"commit", id}).status, 122);
  EXPECT_TRUE(is_mounted()) << "nobody lost a mount to it";
  done({"resolve", id, "dir/b.txt", "--theirs"});
  done({"commit", id});
  EXPECT_EQ(content("a.txt") + content("dir/b.txt") + content("dir/sub/c.txt") + content("new.txt"),
            "minetheirstheirsmine");
  expect_sound();
}

TEST_F(Conflicts, AResultThatWaitsOrWasKeptIsResumed) {
  const ProcessResult waiting = run("echo mine > a.txt", {"--require-approval"});
  ASSERT_EQ(waiting.status, 123) << waiting.err;
  const std::string id = waiting.err.substr(waiting.err.find("session ") + 8, 16);
  ASSERT_EQ(run("echo theirs > a.txt").status, 0);
  EXPECT_EQ(escrow({"approve", id}).status, 122) << "approving it meets a conflict";
  const std::string again = resume(id);
  EXPECT_EQ(status_of(id, "state"), "awaiting_approval") << "it goes on waiting";
  done({"resolve", again, "a.txt", "--mine"});
  EXPECT_EQ(escrow({"commit", again}).status, 123) << "the new one needs approval, too";
  done({"reject", id});
  done({"approve", again});
  EXPECT_EQ(content("a.txt"), "mine");

  const ProcessResult failed = run("echo more > b.txt; exit 3", {"--keep-on-failure"});
  ASSERT_EQ(failed.status, 3);
  const std::string kept = failed.err.substr(failed.err.find("session ") + 8, 16);
  done({"commit", resume(kept)});
  EXPECT_EQ(content("b.txt"), "more");
  refused(1, "nothing of it was kept", {"resume", id});
  const std::string open = mount();
  refused(1, "it is open", {"resume", open});
  expect_sound();
}

TEST_F(Conflicts, WhatCannotBeIsRefusedAndOpensNothing) {
  const std::string older = failed_run("echo mine > a.txt", "echo theirs > a.txt");
  const std::string before = done({"sessions", "--json"});
  for (const char* wrong : {"no-such-directory", "in", "in/a.txt"})
    EXPECT_NE(escrow({"resume", older, file(wrong)}).status, 0) << wrong;
  for (const char* command : {"resume", "resolve"}) {
    const ProcessResult there = run_escrow({"--host", "unix:///no/such/socket", "--repo", "data", command, older});
    EXPECT_EQ(there.status, 125) << there.err;
    EXPECT_TRUE(has(there.err, "cannot reach escrowd at unix:///no/such/socket")) << there.err;
  }
  EXPECT_EQ(done({"sessions", "--json"}), before);
  git("branch -m main elsewhere");
  refused(1, "branch 'main' was deleted", {"resume", older});
}

// Whatever dies: the failed session can be resumed, and what was resumed is whole, or is not there.
TEST_F(Conflicts, AKillBetweenAnyTwoStepsLosesNothing) {
  const std::string older =
      failed_run("echo mine | tee a.txt dir/b.txt dir/sub/c.txt > new.txt", "echo theirs | tee a.txt dir/b.txt > more");
  const std::string id = resume(older, true);
  kill_host_of(id);
  EXPECT_EQ(unresolved(id), (Paths{"a.txt", "dir/b.txt"}));
  done({"mount", mountpoint_, "--session", id});
  EXPECT_EQ(read(in_mount("a.txt")) + read(in_mount("new.txt")) + read(in_mount("more")), "mine\nmine\ntheirs\n");
  done({"resolve", id, "a.txt", "--theirs"});
  kill_host_of(id);
  EXPECT_EQ(unresolved(id), Paths{"dir/b.txt"});
  done({"mount", mountpoint_, "--session", id});
  EXPECT_EQ(read(in_mount("a.txt")), "theirs\n");
  done({"resolve", id, "dir/b.txt", "--mine"});
  kill_host_of(id);
  done({"commit", id});
  EXPECT_EQ(content("a.txt") + content("dir/b.txt") + content("dir/sub/c.txt") + content("new.txt"),
            "theirsmineminemine");
  expect_sound();
}

// Both commands die in their middle, a little later each time.
TEST_F(Conflicts, ACommandThatIsKilledLeavesNothingHalf) {
  const std::string older = failed_run("for n in $(seq 300); do echo mine > n$n; done; echo mine | tee a.txt dir/b.txt",
                                       "echo theirs | tee a.txt > dir/b.txt");
  for (int trial = 0; trial < 8; ++trial) {
    const std::string after = "timeout -s KILL 0.0" + std::to_string(trial + 1) + " '" ESCROW_BINARY "' --repo '" +
                              repository_ + "' ";
    shell(after + "resume " + older + " > /dev/null 2>&1 || true");
    const std::string id = resume(older);
    shell(after + "resolve " + id + " a.txt --theirs > /dev/null 2>&1 || true");
    Paths left = unresolved(id);
    if (left.size() == 2) done({"resolve", id, "a.txt", "--theirs"});
    EXPECT_EQ(unresolved(id), Paths{"dir/b.txt"});
    const std::string changes = escrow({"diff", id, "--name-status"}).out;
    EXPECT_EQ(std::count(changes.begin(), changes.end(), '\n'), 301) << "300 new ones, and dir/b.txt";
    done({"rollback", id});
  }
  // Each session that a killed command has left is a whole one.
  const std::string open = done({"sessions", "--open", "--json"});
  const std::string key = "{\"session\":\"";
  for (std::size_t at = open.find(key); at != std::string::npos; at = open.find(key, at + 1)) {
    const std::string id = open.substr(at + key.size(), 16);
    EXPECT_EQ(unresolved(id), (Paths{"a.txt", "dir/b.txt"}));
    done({"rollback", id});
  }
  const std::string id = resume(older);
  done({"resolve", id, "a.txt", "dir", "--mine"});
  done({"commit", id});
  EXPECT_EQ(content("n300") + content("a.txt"), "minemine");
  expect_sound();
}

}  // namespace
}  // namespace escrow::test
