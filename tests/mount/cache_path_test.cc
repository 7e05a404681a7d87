// Where programs see a session that has a cache: what builds write into a cache names paths, and no path leads to
// another session's files.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <regex>
#include <string>
#include <vector>

#include "tests/mount/run_fixture.h"

namespace escrow::test {
namespace {

class CachePaths : public EscrowRun {
 protected:
  void SetUp() override {
    EscrowRun::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    // As CMake and a virtual environment do, the first build writes down where it was.
    const ProcessResult built = run({"--cache", "build"}, "pwd > build/path");
    ASSERT_EQ(0, built.status) << built.err;
  }
  // A run that has changed a.txt, and waits for the file `go`. Its command line, for sh.
  std::string changing(const std::string& options) const {
    return "run --cache build " + options + " -- sh -c 'echo changed > a.txt && pwd > \"" + file("there") +
           "\" && touch \"" + file("ready") + "\" && until [ -e \"" + file("go") + "\" ]; do sleep 0.05; done'";
  }
  // A build in another run reads by the path that is in the cache.
  static constexpr const char* kReading = "pwd; cat \"$(cat build/path)/a.txt\"; ls -A \"$ELSEWHERE\" | wc -l";

  std::string mountpoint_of_session() {
    const std::string line = escrow({"sessions", "--json"}).out, key = "\"mountpoint\":\"";
    const std::size_t at = line.find(key + '/') + key.size();  // the others are not mounted
    return line.substr(at, line.find('"', at) - at);
  }
};

TEST_F(CachePaths, ConcurrentRunsShareOnePathAndHideEachOther) {
  for (const bool is_named : {false, true}) {
    SCOPED_TRACE(is_named ? "--mountpoint" : "a fresh mountpoint");
    shell("rm -f '" + file("ready") + "' '" + file("go") + "'; mkdir -p '" + file("mnt") + "'");
    const std::string options = is_named ? "--mountpoint '" + file("mnt") + "'" : "";
    BackgroundRun other(
        {"/bin/sh", "-c", "exec " + std::string(ESCROW_BINARY) + " --repo '" + repository_ + "' " + changing(options)},
        file("err"));
    ASSERT_TRUE(eventually([&] { return has("ready"); })) << read("err");
    const std::string mountpoint = mountpoint_of_session();
    EXPECT_EQ(shell("cat '" + mountpoint + "/a.txt'"), "changed");
    const ProcessResult reading = run({"--cache", "build", "--env", "ELSEWHERE=" + mountpoint}, kReading);
    const std::string here = reading.out.substr(0, reading.out.find('\n'));
    EXPECT_EQ(reading.out, here + "\na\n0\n") << reading.err;
    EXPECT_EQ(is_named ? file("mnt") + "\n" : here + "\n", read("there"));
    shell("mkdir -p '" + file("by hand") + "'");
    const ProcessResult by_hand = escrow({"mount", file("by hand"), "--cache", "build"});
    EXPECT_EQ(by_hand.status != 0, is_named) << "its path is one of the machine: " << by_hand.err;
    if (!is_named) {
      EXPECT_EQ(escrow({"unmount", by_hand.out.substr(0, 16)}).status, 0);
    }
    shell("touch '" + file("go") + "'");
    EXPECT_EQ(other.wait(), 0) << read("err");
    shell("'" + std::string(ESCROW_BINARY) + "' --repo '" + repository_ + "' run -- sh -c 'echo a > a.txt'");
  }
}

TEST_F(CachePaths, RunsOfAllBranchesShareOnePath) {
  git("branch other main");
  EXPECT_EQ(run({"--cache", "build"}, "pwd").out, run({"--cache", "build", "--branch", "other"}, "pwd").out);
}

// dockerd makes a directory that is missing, as `mkdir -p` does.
TEST_F(CachePaths, ThePathCannotBeCreatedOnTheMachine) {
  const std::string path = run({"--cache", "build"}, "pwd").out;
  const ProcessResult made = run_process({"mkdir", "-p", path.substr(0, path.find('\n'))});
  EXPECT_NE(made.status, 0) << path;
  EXPECT_NE(made.err.find("Not a directory"), std::string::npos) << made.err;
}

TEST_F(CachePaths, ARunInARunSeesItsOwnSessionOnly) {
  const std::string inner = std::string(ESCROW_BINARY) + " --repo '" + repository_ + "' run --cache build -- ";
  const ProcessResult result =
      run({"--cache", "build"}, "echo changed > a.txt; outer=$PWD; " + inner +
                                    "sh -c 'cat $(cat build/path)/a.txt; test $PWD = '$outer' || echo other'; " +
                                    "cat a.txt");
  EXPECT_EQ(result.out, "a\nchanged\n") << result.err;
  EXPECT_EQ(result.err.find("warning"), std::string::npos) << result.err;
}

// The namespace of a run has the mounts that there were when it began.
TEST_F(CachePaths, AMountIsNotHeldByRunsThatBeganLater) {
  if (::geteuid() != 0) GTEST_SKIP() << "an ordinary user cannot take away mounts of the machine";
  shell("mkdir '" + file("mnt") + "'");
  const ProcessResult mounted = escrow({"mount", file("mnt")});
  ASSERT_EQ(mounted.status, 0) << mounted.err;
  BackgroundRun later({"/bin/sh", "-c", "exec " + std::string(ESCROW_BINARY) + " --repo '" + repository_ + "' " +
                                            changing("")},
                      file("err"));
  ASSERT_TRUE(eventually([&] { return has("ready"); })) << read("err");
  shell("umount '" + file("mnt") + "'");
  EXPECT_TRUE(eventually([&] {
    return escrow({"status", mounted.out.substr(0, 16)}).out.find("attachment:  none") != std::string::npos;
  }));
  shell("touch '" + file("go") + "'");
  EXPECT_EQ(later.wait(), 0) << read("err");
}

TEST_F(CachePaths, EscrowsCommandsWorkInTheNamespace) {
  const std::string escrow = ESCROW_BINARY;
  const ProcessResult result =
      run({"--cache", "build"}, "echo one > a.txt && cd dir && " + escrow + " status && " + escrow +
                                    " savepoint create one && echo two > ../a.txt && " + escrow +
                                    " savepoint restore one && cat ../a.txt");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("attachment:  mounted"), std::string::npos) << result.out;
  EXPECT_EQ(content("a.txt"), "one");
}

TEST_F(CachePaths, ASecondHandMountedSessionIsRefusedTheCache) {
  shell("mkdir '" + file("one") + "' '" + file("two") + "'");
  ASSERT_EQ(escrow({"mount", file("one"), "--cache", "build"}).status, 0);
  const ProcessResult refused = escrow({"mount", file("two"), "--cache", "build"});
  EXPECT_NE(refused.status, 0);
  EXPECT_NE(refused.err.find("the cache 'build' is in use by session"), std::string::npos) << refused.err;
  const ProcessResult two = escrow({"mount", file("two"), "--cache", "build=other"});
  const std::string id = two.out.substr(0, 16);
  EXPECT_EQ(two.status, 0) << two.err;
  const ProcessResult added = escrow({"mounts", "add", id, "--cache", "again=build"});
  EXPECT_NE(added.err.find("the cache 'build' is in use by session"), std::string::npos) << added.err;
  const ProcessResult run_beside = run({"--cache", "build"}, "ls -A '" + file("one") + "' | wc -l");
  EXPECT_EQ(run_beside.out, "0\n") << run_beside.err;
  ASSERT_EQ(escrow({"unmount", file("one")}).status, 0);
  EXPECT_EQ(escrow({"mounts", "add", id, "--cache", "again=build"}).status, 0);
  EXPECT_EQ(escrow({"unmount", file("two")}).status, 0);
}

TEST_F(CachePaths, ACacheThatWasTakenOutOfAMountIsFreeForOthers) {
  shell("mkdir '" + file("one") + "' '" + file("two") + "'");
  const std::string one = escrow({"mount", file("one"), "--cache", "build", "--cache", "kept"}).out.substr(0, 16);
  ASSERT_EQ(escrow({"mounts", "remove", one, "build"}).status, 0);
  const std::string two = escrow({"mount", file("two"), "--cache", "build"}).out.substr(0, 16);
  EXPECT_EQ(two.size(), 16u);
  EXPECT_NE(escrow({"mounts", "add", two, "--cache", "kept"}).status, 0);
  for (const char* at : {"one", "two"}) EXPECT_EQ(escrow({"unmount", file(at)}).status, 0);
}

TEST_F(CachePaths, MountsForContainersShareACache) {
  shell("mkdir '" + file("one") + "' '" + file("two") + "' '" + file("three") + "'");
  for (const char* at : {"one", "two"})
    ASSERT_EQ(escrow({"mount", file(at), "--cache", "build", "-o", "in_container"}).status, 0);
  const ProcessResult refused = escrow({"mount", file("three"), "--cache", "build"});
  EXPECT_NE(refused.status, 0);
  EXPECT_NE(refused.err.find("mounts with the option in_container"), std::string::npos) << refused.err;
  for (const char* at : {"one", "two"}) EXPECT_EQ(escrow({"unmount", file(at)}).status, 0);
}

// No directory can be made below /run, as in a container whose root is read-only.
TEST_F(CachePaths, ARunWithoutANamespaceRefusesTheCacheToOthers) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to hide /run";
  const std::string escrow = std::string(ESCROW_BINARY) + " --repo '" + repository_ + "' ";
  const std::string second = escrow + "run --cache build -- true";
  const ProcessResult result = run_process(
      {"unshare", "-m", "sh", "-c",
       "mount -t tmpfs -o ro none /run && " + escrow + "run --cache build -- sh -c \"" + second + "; echo \\$?\" && " +
           second});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "125\n") << result.err;
  EXPECT_NE(result.err.find("the cache 'build' is in use by session"), std::string::npos) << result.err;
}

// With the helper of libfuse, whose mount would be one of the machine. The device is root's on many machines, so the
// test brings one that everybody may open, and a /tmp.
TEST_F(CachePaths, ConcurrentRunsOfAnOrdinaryUserHideEachOther) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become an ordinary user with a device of its own";
  const std::string mine = file("mine"), repository = mine + "/r.git";
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  shell("mkdir " + mine + " && cp " + ESCROW_BINARY + " " + mine + "/escrow && chmod 755 " + mine +
        "/escrow && chown -R 65534:65534 " + mine);
  const std::string escrow = mine + "/escrow --repo " + repository + " ";
  const std::string sessions_seen = "for one in $(grep \" fuse.escrow \" /proc/self/mountinfo | cut -d\" \" -f5); do "
                                    "test ! -e $one/a.txt || echo $one; done";
  const std::string waiting = "until [ -e " + mine + "/ready ]; do sleep 0.05; done";
  const std::string script =
      "set -e; " + escrow + "init > /dev/null\n" + escrow +
      "run --cache build -- sh -c 'pwd > build/path; echo a > a.txt'\n" +
      "(" + escrow + "run --cache build -- sh -c 'echo changed > a.txt; pwd > " + mine + "/there; touch " + mine +
      "/ready; until [ -e " + mine + "/go ]; do sleep 0.05; done') & " + waiting + "\n" + escrow +
      "run --cache build -- sh -c 'cat $(cat build/path)/a.txt; pwd; " + sessions_seen + "'\n" +
      "touch " + mine + "/go; wait; cat " + mine + "/there";
  shell("cat > " + mine + "/script", {.directory = {}, .environment = {}, .input = script});
  const ProcessResult result = run_process(
      {"unshare", "-m", "sh", "-c",
       "mount -t tmpfs none /mnt && mknod /mnt/fuse c 10 229 && chmod 666 /mnt/fuse && "
       "mount --bind /mnt/fuse /dev/fuse && mkdir /mnt/tmp && chmod 1777 /mnt/tmp && mkdir -p /mnt/tmp/.keep && "
       "exec setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=" + mine + " XDG_RUNTIME_DIR=" + mine +
           " sh " + mine + "/script"});
  EXPECT_EQ(result.status, 0) << result.err;
  const std::regex wanted("a\n(/.*/mine/escrow-runs/session/[a-z0-9]{6})\n\\1\n\\1\n");
  EXPECT_TRUE(std::regex_match(result.out, wanted)) << result.out << result.err;
}

}  // namespace
}  // namespace escrow::test
