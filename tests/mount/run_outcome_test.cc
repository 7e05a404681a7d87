// How a run can end: one test for each row of the exit statuses, and for what is told about it.
#include <signal.h>

#include "tests/mount/run_fixture.h"

namespace escrow::test {
namespace {

TEST_F(EscrowRun, ExitZeroCommitsEverythingAsOneCommit) {
  const std::string before = head();
  const ProcessResult result =
      run("echo new > new.txt; echo more >> a.txt; rm dir/b.txt; mkdir -p x/y; echo z > x/y/z");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(git("rev-parse main^"), before);
  EXPECT_EQ(content("a.txt"), "a\nmore");
  EXPECT_EQ(content("x/y/z"), "z");
  EXPECT_FALSE(is_in_head("dir/b.txt"));
  EXPECT_NE(last_line(result.err).find("was committed to main as " + head().substr(0, 12) +
                                       ": 2 added, 1 modified, 1 deleted"),
            std::string::npos)
      << result.err;
  EXPECT_NO_THROW(git("fsck --strict"));
}

TEST_F(EscrowRun, NoChangeIsNoCommit) {
  const std::string before = head();
  const ProcessResult result = run("cat a.txt; touch a.txt");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "a\n");
  EXPECT_EQ(head(), before);
  EXPECT_NE(last_line(result.err).find("changed nothing, so there is no commit"), std::string::npos) << result.err;
}

TEST_F(EscrowRun, ManyCommitsDoNotLeaveManyPacks) {
  for (int i = 0; i < 55; ++i) ASSERT_EQ(run("echo " + std::to_string(i) + " >> a.txt").status, 0);
  EXPECT_EQ(shell("test $(ls '" + repository_ + "'/objects/pack/*.pack | wc -l) -lt 10 && echo few"), "few");
  EXPECT_EQ(shell("git -C '" + repository_ + "' fsck --strict 2>&1 && git -C '" + repository_ +
                  "' rev-list --count main"), shell("echo 56"));
  EXPECT_EQ(shell("git -C '" + repository_ + "' show main:a.txt | tail -n 1"), "54");
}

TEST_F(EscrowRun, ANonZeroExitRollsBackWithThatStatus) {
  const std::string before = head();
  // Not as one word: the command line itself is kept for the audit.
  const ProcessResult result = run("printf 'secret-of-a-%s' failure > new.txt; rm a.txt; exit 77");
  EXPECT_EQ(result.status, 77);
  EXPECT_EQ(head(), before);
  EXPECT_NE(last_line(result.err).find("was rolled back: the command exited with status 77"), std::string::npos)
      << result.err;
  EXPECT_EQ(shell("grep -r secret-of-a-failure '" + repository_ + "' || echo nothing"), "nothing");
  EXPECT_EQ(shell("find '" + repository_ + "/escrow/sessions' -mindepth 1 | wc -l"), "0");
}

TEST_F(EscrowRun, DeathByASignalRollsBackWith128AndTheSignal) {
  const std::string before = head();
  const ProcessResult result = run("echo new > new.txt; kill -SEGV $$");
  EXPECT_EQ(result.status, 128 + SIGSEGV);
  EXPECT_EQ(head(), before);
  EXPECT_NE(last_line(result.err).find("killed by SIGSEGV"), std::string::npos) << result.err;
}

TEST_F(EscrowRun, ATimeoutIs124EvenIfTheCommandExitsWithZeroThen) {
  const std::string before = head();
  const ProcessResult result =
      run({"--timeout", "300ms"}, "echo new > new.txt; trap 'exit 0' TERM; while :; do sleep 0.05; done");
  EXPECT_EQ(result.status, 124) << result.err;
  EXPECT_EQ(head(), before);
  EXPECT_NE(last_line(result.err).find("ran longer than 300ms"), std::string::npos) << result.err;
}

TEST_F(EscrowRun, ACommandThatStopsItsSupervisorIsNotCommittedAfterTheTimeout) {
  const ProcessResult result = run({"--timeout", "500ms"}, "echo x > new.txt; kill -STOP $PPID; trap '' TERM; sleep 1; "
                                                           "while ! grep -q 'State:.[SRD]' /proc/$PPID/status; do "
                                                           "sleep 0.1; done; exit 0");
  EXPECT_EQ(result.status, 124) << result.err;
  EXPECT_FALSE(is_in_head("new.txt"));
}

// Reading 15 TiB of zeroes takes a day.
TEST_F(EscrowRun, SigtermCancelsTheStoringOfWhatTheCommandLeft) {
  for (const bool keeps : {false, true}) {
    const std::vector<std::string> options(keeps ? 1 : 0, "--keep-on-failure");
    BackgroundRun background(run_command_line(options, "truncate -s 15T huge; touch " + file("done")), file("err"));
    EXPECT_TRUE(eventually([&] { return has("done"); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    ::kill(background.pid(), SIGTERM);
    EXPECT_EQ(background.wait(), 128 + SIGTERM) << read("err");
    EXPECT_NE(last_line(read("err")).find("was cancelled by SIGTERM"), std::string::npos) << read("err");
    EXPECT_EQ(read("err").find("is not kept") != std::string::npos, keeps) << read("err");
    ::unlink(file("done").c_str());
  }
  EXPECT_TRUE(no_mount_left());
  EXPECT_EQ(run("echo 1 > one").status, 0);
}

TEST_F(EscrowRun, SigtermAndSigintCancelWhateverTheCommandExitsWith) {
  const std::string before = head();
  for (const int number : {SIGTERM, SIGINT}) {
    BackgroundRun background(
        run_command_line({}, "echo new > new.txt; trap 'exit 0' TERM INT; touch " + file("ready") +
                                 "; while :; do sleep 0.05; done"),
        file("err"));
    ASSERT_TRUE(eventually([&] { return has("ready"); }));
    ::kill(background.pid(), number);
    EXPECT_EQ(background.wait(), 128 + number);
    EXPECT_EQ(head(), before);
    EXPECT_NE(last_line(read("err")).find("was cancelled by SIG"), std::string::npos) << read("err");
    ::unlink(file("ready").c_str());
  }
}

TEST_F(EscrowRun, ACommandThatIsDeafIsKilledAfterTheGracePeriod) {
  BackgroundRun background(run_command_line({"--grace", "200ms"}, "trap '' TERM INT; touch " + file("ready") +
                                                                      "; while :; do sleep 0.05; done"),
                           file("err"));
  ASSERT_TRUE(eventually([&] { return has("ready"); }));
  ::kill(background.pid(), SIGTERM);
  EXPECT_EQ(background.wait(), 128 + SIGTERM);
}

TEST_F(EscrowRun, ACommandThatIsNotFoundIs127AndOneThatCannotBeRunIs126) {
  const ProcessResult missing = escrow({"run", "--", "no-such-program"});
  EXPECT_EQ(missing.status, 127);
  EXPECT_NE(last_line(missing.err).find("\"no-such-program\" was not found"), std::string::npos) << missing.err;
  const ProcessResult refused = escrow({"run", "--", "./a.txt"});
  EXPECT_EQ(refused.status, 126);
  EXPECT_NE(last_line(refused.err).find("could not be run"), std::string::npos) << refused.err;
}

TEST_F(EscrowRun, AConflictIs122AndKeepsTheResult) {
  const ProcessResult result = run("echo mine > a.txt; echo new > fine.txt; " + std::string(ESCROW_BINARY) +
                                   " --repo " + repository_ + " run -- sh -c 'echo theirs > a.txt' 2> $OUT/inner");
  EXPECT_EQ(result.status, 122) << result.err << read("inner");
  EXPECT_EQ(content("a.txt"), "theirs");
  EXPECT_FALSE(is_in_head("fine.txt"));
  EXPECT_NE(last_line(result.err).find("1 path conflicts"), std::string::npos) << result.err;
  EXPECT_NE(last_line(result.err).find("a.txt"), std::string::npos) << result.err;
  const std::size_t at = result.err.find("refs/sessions/");
  ASSERT_NE(at, std::string::npos);
  const std::string kept = result.err.substr(at, 14 + 16);
  EXPECT_EQ(git("show " + kept + ":a.txt"), "mine");
  // Anybody who may fetch the branch may fetch the result by its name; a clone leaves it out, and no push changes it.
  const std::string fetched = "git clone -q '" + repository_ + "' " + file("clone") + " && cd " + file("clone") +
                              " && git fetch -q origin " + kept + " && git show FETCH_HEAD:a.txt";
  EXPECT_EQ(shell(fetched), "mine");
  EXPECT_NE(git("push -q '" + repository_ + "' :" + kept + " 2>&1 || true").find("hidden ref"), std::string::npos);
}

TEST_F(EscrowRun, FailuresOfEscrowItselfAre125AndOneSentence) {
  const std::vector<std::vector<std::string>> lines = {
      {"run", "--branch", "no-such-branch", "--", "true"}, {"run", "--path-prefix", "../x", "--", "true"},
      {"run", "--path-prefix", "a.txt", "--", "true"},     {"run", "--mountpoint", "/no/such/place", "--", "true"},
      {"run", "--timeout", "soon", "--", "true"},          {"run", "--env", "novalue", "--", "true"},
      {"run", "--umask", "9", "--", "true"},               {"run", "--committer", "nobody", "--", "true"},
      {"run", "--result", "/no/such/place", "--", "true"}, {"run", "--no-such-option", "--", "true"},
      {"run", "--mountpoint", file("in"), "--", "true"}};
  for (const auto& line : lines) {
    const ProcessResult result = escrow(line);
    EXPECT_EQ(result.status, 125) << line[1] << ": " << result.err;
    EXPECT_EQ(last_line(result.err).rfind("escrow: ", 0), 0u) << result.err;
  }
  const ProcessResult nowhere = run_escrow({"--repo", file("nothing"), "run", "--", "true"});
  EXPECT_EQ(nowhere.status, 125) << nowhere.err;
}

TEST_F(EscrowRun, TheResultFileSaysWhatBecameOfTheSession) {
  EXPECT_EQ(run({"--result", file("r1")}, "echo new > new.txt").status, 0);
  const std::string committed = read("r1");
  EXPECT_NE(committed.find("\"state\":\"committed\""), std::string::npos) << committed;
  EXPECT_NE(committed.find("\"reason\":\"success\""), std::string::npos) << committed;
  EXPECT_NE(committed.find("\"commit\":\"" + head() + "\""), std::string::npos) << committed;
  EXPECT_NE(committed.find("\"base\":\"" + git("rev-parse main^") + "\""), std::string::npos) << committed;
  EXPECT_NE(committed.find("\"exit_code\":0"), std::string::npos) << committed;
  EXPECT_NE(committed.find("\"counts\":{\"added\":1,\"modified\":0,\"deleted\":0}"), std::string::npos) << committed;
  EXPECT_EQ(run({"--result", file("r2")}, "exit 9").status, 9);
  const std::string rolled_back = read("r2");
  EXPECT_NE(rolled_back.find("\"state\":\"rolled_back\""), std::string::npos) << rolled_back;
  EXPECT_NE(rolled_back.find("\"reason\":\"exit_status\""), std::string::npos) << rolled_back;
  EXPECT_NE(rolled_back.find("\"commit\":null"), std::string::npos) << rolled_back;
  EXPECT_NE(rolled_back.find("\"exit_code\":9"), std::string::npos) << rolled_back;
  EXPECT_EQ(escrow({"run", "--result", file("r3"), "--branch", "none", "--", "true"}).status, 125);
  EXPECT_NE(read("r3").find("\"session\":null"), std::string::npos) << read("r3");
  EXPECT_NE(read("r3").find("none"), std::string::npos) << read("r3");
}

TEST_F(EscrowRun, WhatGitCannotHoldIsNamed) {
  const ProcessResult result =
      run({"--result", file("r")}, "mkfifo pipe; mkdir empty; mkdir -p sub/.git; echo x > sub/.git/config; echo y > y");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("left out of the commit"), std::string::npos) << result.err;
  const std::string json = read("r");
  EXPECT_NE(json.find("\"fifo\":[\"pipe\"]"), std::string::npos) << json;
  EXPECT_NE(json.find("\"empty_directory\":["), std::string::npos) << json;
  EXPECT_TRUE(is_in_head("y"));
}

TEST_F(EscrowRun, KeepOnFailureKeepsTheResult) {
  const ProcessResult result = run({"--keep-on-failure"}, "echo kept > kept.txt; exit 4");
  EXPECT_EQ(result.status, 4);
  const std::size_t at = result.err.find("refs/sessions/");
  ASSERT_NE(at, std::string::npos) << result.err;
  EXPECT_EQ(git("show " + result.err.substr(at, 14 + 16) + ":kept.txt"), "kept");
}

TEST_F(EscrowRun, TheAuditRecordIsInTheCommit) {
  const ProcessResult result =
      run({"--committer", "agent:builder", "--issuer", "user:alice", "--trigger", "nightly", "--trigger-id", "42", "-m",
           "the message"},
          "echo new > new.txt");
  EXPECT_EQ(result.status, 0) << result.err;
  const std::string message = git("log -1 --format=%B main");
  for (const char* line : {"the message", "Escrow-Committer: agent:builder", "Escrow-Issuer: user:alice",
                           "Escrow-Source: sandbox", "Escrow-Trigger: nightly", "Escrow-Trigger-Id: 42",
                           "Escrow-Exit-Code: 0"}) {
    EXPECT_NE(message.find(line), std::string::npos) << line << " in " << message;
  }
  const ProcessResult imported = escrow({"import", file("in"), "--path-prefix", "more", "--image", "debian:12"});
  EXPECT_EQ(imported.status, 0) << imported.err;
  EXPECT_NE(git("log -1 --format=%B main").find("Escrow-Image: debian:12"), std::string::npos);
}

}  // namespace
}  // namespace escrow::test
