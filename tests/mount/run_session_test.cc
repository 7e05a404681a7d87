// What a command sees and may do in its mount, and many runs beside one another.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <sstream>

#include "tests/mount/run_fixture.h"
#include "tests/support/seed.h"

namespace escrow::test {
namespace {

TEST_F(EscrowRun, TheMountIsTheWorkingDirectoryAndTheEnvironmentSaysSo) {
  const ProcessResult result =
      run({"--env", "MARK=one two", "--env", "LIST=[a,b]"},
          "pwd; echo $PWD; echo $ESCROW_MOUNT; echo $ESCROW_SESSION | grep -cE '^[0-9a-f]{16}$'; echo $MARK $LIST; "
          "stat -f -c %T .; mount | grep -c \"$ESCROW_MOUNT type fuse.escrow\"");
  EXPECT_EQ(result.status, 0) << result.err;
  std::istringstream lines(result.out);
  std::string directory, variable, mount, session, mark, type, mounted;
  for (std::string* line : {&directory, &variable, &mount, &session, &mark, &type, &mounted}) {
    std::getline(lines, *line);
  }
  EXPECT_EQ(directory, mount);
  EXPECT_EQ(variable, mount);
  EXPECT_EQ(session, "1");
  EXPECT_EQ(mark, "one two [a,b]");
  EXPECT_EQ(type.rfind("fuse", 0), 0u) << type;
  EXPECT_EQ(mounted, "1");
  EXPECT_NE(::access(mount.c_str(), F_OK), 0) << "the fresh mountpoint is gone";
}

TEST_F(EscrowRun, ArgumentsReachTheCommandAsTheyAre) {
  const ProcessResult result = escrow({"run", "--", "printf", "<%s>", "[0-9]", "", "[a,b]", "--repo", "-x", "{}"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "<[0-9]><><[a,b]><--repo><-x><{}>");
  const ProcessResult without_dashes = escrow({"run", "printf", "<%s>", "[0-9]", "-v", "--help"});
  EXPECT_EQ(without_dashes.out, "<[0-9]><-v><--help>") << without_dashes.err;
}

TEST_F(EscrowRun, TheHostMayOpenAsMuchAsIsAllowedAndTheCommandAsMuchAsItsCaller) {
  std::vector<std::string> command = {"sh", "-c", "ulimit -S -n 300; exec \"$0\" \"$@\""};
  const std::string script = "ulimit -S -n; ulimit -H -n; "
                             "grep 'Max open files' /proc/$(awk '{print $4}' /proc/$PPID/stat)/limits";
  for (const std::string& word : run_command_line({}, script)) command.push_back(word);
  const ProcessResult result = run_process(command, {.directory = directory_.path(), .environment = {}, .input = ""});
  EXPECT_EQ(result.status, 0) << result.err;
  std::istringstream words(result.out);
  std::string soft, hard, max, open, files, host_soft;
  words >> soft >> hard >> max >> open >> files >> host_soft;
  EXPECT_EQ(soft, "300");
  EXPECT_EQ(host_soft, hard);
}

TEST_F(EscrowRun, TheCommandIsInItsSessionHoweverManyFilesItsCallerHasOpen) {
  ASSERT_EQ(run_process({"mkdir", file("other")}).status, 0);
  for (const char* count : {"60", "95", "110", "300", "4096"}) {
    std::vector<std::string> command = {
        "bash", "-c", "ulimit -S -n $(ulimit -H -n); cd '" + file("other") + "'\n"
        "for ((i = 0; i < " + count + "; ++i)); do exec {fd}< .; done; exec \"$0\" \"$@\""};
    const std::string name = std::string("made-") + count;
    for (const std::string& word : run_command_line({}, "echo x > " + name)) command.push_back(word);
    const ProcessResult result = run_process(command, {.directory = directory_.path(), .environment = {}, .input = ""});
    EXPECT_EQ(result.status, 0) << count << ": " << result.err;
    EXPECT_TRUE(is_in_head(name)) << count;
    EXPECT_FALSE(has("other/" + name)) << count;
  }
  EXPECT_TRUE(no_mount_left());
}

TEST_F(EscrowRun, WithoutAMountNoCommandIsStarted) {
  const std::string before = head();
  for (const std::vector<std::string>& options : {std::vector<std::string>{}, {"--confine"}, {"--network", "none"}}) {
    std::vector<std::string> all = options;
    all.insert(all.end(), {"--result", file("result")});
    const ProcessResult result =
        run_process(run_command_line(all, "touch " + file("started")),
                    {.directory = directory_.path(), .environment = {{"LD_PRELOAD", MISLED_MOUNT}}, .input = ""});
    EXPECT_EQ(result.status, 125) << result.err;
    EXPECT_NE(result.err.find("does not lead to the new mount"), std::string::npos) << result.err;
    EXPECT_NE(read("result").find("\"rolled_back\""), std::string::npos) << read("result");
    EXPECT_FALSE(has("started"));
    EXPECT_EQ(head(), before);
  }
}

// Both may find the directory empty before either is mounted there.
TEST_F(EscrowRun, OfTwoRunsOnOneMountpointNeitherWorksInTheOthersSession) {
  ASSERT_EQ(run_process({"mkdir", file("point")}).status, 0);
  for (std::uint64_t round = 0; round < support::gate_or_campaign(5, 200); ++round) {
    std::vector<std::unique_ptr<BackgroundRun>> runs;
    for (const char* name : {"one", "two"}) {
      const std::string made = name + std::to_string(round);
      runs.push_back(std::make_unique<BackgroundRun>(
          run_command_line({"--mountpoint", file("point"), "--message", made}, "ls > " + made), file("err-" + made)));
    }
    for (const char* name : {"one", "two"}) {
      const std::string made = name + std::to_string(round);
      const int status = runs[name == std::string("two")]->wait();
      EXPECT_TRUE(status == 0 || status == 125) << status << read("err-" + made);
      EXPECT_EQ(is_in_head(made), status == 0) << read("err-" + made);
      if (status != 0) continue;
      EXPECT_EQ(git("log -1 --format=%s main -- " + made), made);
    }
  }
  EXPECT_TRUE(no_mount_left());
}

TEST_F(EscrowRun, StandardInputAndOutputPassThrough) {
  const ProcessResult result =
      run_process(run_command_line({}, "cat > from-stdin; echo out; echo err >&2"),
                  {.directory = directory_.path(), .environment = {}, .input = "hello\n"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(content("from-stdin"), "hello");
}

TEST_F(EscrowRun, ASessionSeesItsSnapshotWhateverIsCommittedMeanwhile) {
  BackgroundRun first(run_command_line({}, "cat a.txt > seen-1; touch " + file("up") + "; while [ ! -e " +
                                               file("go") +
                                               " ]; do sleep 0.01; done; cat a.txt > seen-2; ls > seen-3; cat "
                                               "dir/sub/c.txt > seen-4"),
                      file("err"));
  ASSERT_TRUE(eventually([&] { return has("up"); }));
  EXPECT_EQ(run("echo others > a.txt; echo others > others.txt; echo others > dir/sub/c.txt").status, 0);
  ASSERT_EQ(run_process({"touch", file("go")}).status, 0);
  EXPECT_EQ(first.wait(), 0) << read("err");
  EXPECT_EQ(content("seen-1"), "a");
  EXPECT_EQ(content("seen-2"), "a");
  EXPECT_EQ(content("seen-3").find("others"), std::string::npos);
  EXPECT_EQ(content("seen-4"), "c");
  EXPECT_EQ(content("a.txt"), "others") << "and what the others did stays";
}

TEST_F(EscrowRun, EightParallelRunsAllCommitToOneBranch) {
  const std::string before = head();
  std::vector<std::unique_ptr<BackgroundRun>> runs;
  for (int at = 0; at < 8; ++at) {
    const std::string name = std::to_string(at);
    runs.push_back(std::make_unique<BackgroundRun>(
        run_command_line({}, "mkdir -p out/" + name + "; echo " + name + " > out/" + name + "/file"),
        file("err-" + name)));
  }
  for (int at = 0; at < 8; ++at) EXPECT_EQ(runs[at]->wait(), 0) << read("err-" + std::to_string(at));
  EXPECT_EQ(git("rev-list --count --first-parent " + before + "..main"), "8");
  EXPECT_EQ(git("rev-list --count --merges " + before + "..main"), "0");
  for (int at = 0; at < 8; ++at) {
    EXPECT_EQ(content("out/" + std::to_string(at) + "/file"), std::to_string(at));
  }
  EXPECT_NO_THROW(git("fsck --strict"));
}

TEST_F(EscrowRun, APathPrefixIsTheRootAndNothingElseCanBeNamed) {
  const ProcessResult result =
      run({"--path-prefix", "dir"}, "ls -A; cat sub/c.txt; echo new > new.txt; ls $ESCROW_MOUNT/../a.txt 2> /dev/null");
  EXPECT_NE(result.status, 0);
  EXPECT_EQ(result.out, "b.txt\nsub\nc\n");
  EXPECT_EQ(run({"--path-prefix", "/dir/"}, "echo new > new.txt").status, 0);
  EXPECT_EQ(content("dir/new.txt"), "new");
  EXPECT_EQ(content("a.txt"), "a");
  EXPECT_EQ(run({"--path-prefix", "not/there"}, "ls -A | wc -l; echo x > made").status, 0);
  EXPECT_EQ(content("not/there/made"), "x");
}

TEST_F(EscrowRun, WhatIsExcludedStaysOutOfTheCommitAndIsNamed) {
  const ProcessResult result = run({"--exclude", "*.tmp", "--exclude", "[Cc]ache/", "--result", file("r")},
                                   "echo x > a.tmp; mkdir cache; echo x > cache/y; echo x > kept; echo x > ignored; "
                                   "echo ignored > .gitignore; cat a.tmp");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_FALSE(is_in_head("a.tmp"));
  EXPECT_FALSE(is_in_head("cache"));
  EXPECT_TRUE(is_in_head("kept") && is_in_head(".gitignore"));
  EXPECT_FALSE(is_in_head("ignored"));
  EXPECT_NE(read("r").find("\"a.tmp\""), std::string::npos) << read("r");
  EXPECT_NE(last_line(result.err).find("not in it"), std::string::npos) << result.err;
}

TEST_F(EscrowRun, ExtendedAttributesAreThereWhenAskedForAndLeftOutByName) {
  const std::string script = "setfattr -n user.color -v blue a.txt && getfattr --only-values -n user.color a.txt";
  EXPECT_NE(run(script).status, 0) << "off is the default";
  const ProcessResult result = run({"--xattr", "user", "--result", file("result")}, script);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "blue");
  EXPECT_NE(read("result").find("\"xattrs\""), std::string::npos);
}

TEST_F(EscrowRun, ALimitFailsTheCallThatGoesBeyondIt) {
  const ProcessResult files = run({"--limit-files", "2"}, "touch one two three");
  EXPECT_EQ(files.status, 1) << files.err;
  EXPECT_NE(files.err.find("three"), std::string::npos) << files.err;
  EXPECT_NE(files.err.find("quota"), std::string::npos) << files.err;
  const ProcessResult bytes = run({"--limit-staged-bytes", "1000000"}, "head -c 3000000 /dev/zero > zeros");
  EXPECT_NE(bytes.status, 0) << bytes.err;
  EXPECT_EQ(run({"--limit-files", "2"}, "touch one two").status, 0);
  EXPECT_EQ(run({"--limit-staged-bytes", "1", "--io", "passthrough"}, "true").status, 125);
}

TEST_F(EscrowRun, AReadOnlyRunCanChangeNothing) {
  const std::string before = head();
  const ProcessResult result = run({"--read-only"},
                                   "cat a.txt; for c in 'touch n' 'rm a.txt' 'mkdir d' 'mv a.txt b' 'chmod +x a.txt' "
                                   "'ln a.txt l' 'ln -s x y' 'truncate -s0 a.txt'; do $c 2>&1 | grep -c 'Read-only "
                                   "file system'; done");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "a\n1\n1\n1\n1\n1\n1\n1\n1\n");
  EXPECT_EQ(head(), before);
}

TEST_F(EscrowRun, TheFirstCommitOfAnEmptyRepositoryWorks) {
  const std::string fresh = file("fresh.git");
  ASSERT_EQ(run_escrow({"--repo", fresh, "init", "--branch", "trunk"}).status, 0);
  const ProcessResult result = run_escrow({"--repo", fresh, "run", "--", "sh", "-c", "ls -A; echo first > f"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(shell("git -c safe.directory='*' --git-dir '" + fresh + "' show trunk:f"), "first");
}

TEST_F(EscrowRun, RunsAsAnotherUserWhoOwnsWhatTheRepositoryHolds) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may";
  const ProcessResult result = run({"--uid", "65534", "--gid", "65534", "--umask", "027"},
                                   "id -u; stat -c %u a.txt; echo new > new.txt; stat -c '%u %a' new.txt");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "65534\n65534\n65534 640\n");
  EXPECT_EQ(content("new.txt"), "new");
}

// /dev/fuse is root's on many machines, so the test brings a device node that everybody may open.
TEST_F(EscrowRun, AnOrdinaryUserRunsInAUserNamespaceOrIsToldWhyNot) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become an ordinary user with a device of its own";
  const std::string mine = file("mine");
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  const std::string setup = "mkdir " + mine + " && chown 65534:65534 " + mine + " && cp " + ESCROW_BINARY + " " + mine +
                            "/escrow && chmod 755 " + mine + "/escrow";
  ASSERT_NO_THROW(shell(setup));
  const std::string as_nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=" + mine;
  const std::string script = as_nobody + " " + mine + "/escrow --repo " + mine + "/r.git init && " + as_nobody + " " +
                             mine + "/escrow --repo " + mine +
                             "/r.git run -- sh -c 'id -u; echo mine > f; stat -c %u f; echo $ESCROW_MOUNT'";
  // Nothing but this test sees the device, and fusermount3 without its bit.
  const std::string with_device = "mount -t tmpfs none /mnt && mknod /mnt/fuse c 10 229 && chmod 666 /mnt/fuse && "
                                  "mount --bind /mnt/fuse /dev/fuse && cp /usr/bin/fusermount3 /mnt/helper && "
                                  "mount --bind /mnt/helper /usr/bin/fusermount3 && ";
  const ProcessResult works = run_process({"unshare", "-m", "sh", "-c", with_device + script});
  EXPECT_EQ(works.status, 0) << works.err;
  EXPECT_EQ(works.out.rfind("65534\n65534\n", works.out.find("65534")), works.out.find("65534")) << works.out;
  EXPECT_EQ(shell("git -c safe.directory='*' --git-dir " + mine + "/r.git show main:f"), "mine");
  const std::string without_device = "mount -t tmpfs none /mnt && mknod /mnt/fuse c 10 229 && chmod 600 /mnt/fuse && "
                                     "mount --bind /mnt/fuse /dev/fuse && ";
  const ProcessResult refused = run_process({"unshare", "-m", "sh", "-c", without_device + script});
  EXPECT_EQ(refused.status, 125) << refused.err;
  EXPECT_NE(last_line(refused.err).find("/dev/fuse cannot be opened by this user"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace escrow::test
