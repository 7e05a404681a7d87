// The guard (H1, H2, H4, M4): what a hostile native program finds, and fails to do. guard_probe.cc makes its own system
// calls, so what is refused is refused by the kernel and the mount.
#include <sys/stat.h>
#include <unistd.h>

#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "tests/mount/run_fixture.h"

namespace escrow::test {
namespace {

class Guard : public EscrowRun {
 protected:
  void SetUp() override {
    EscrowRun::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    shell("mkdir -p probe && cp '" GUARD_PROBE "' probe/probe", {.directory = directory_.path(), .environment = {},
                                                                 .input = {}});
    ASSERT_EQ(escrow({"import", file("probe"), "--path-prefix", "bin", "--message", "a probe"}).status, 0);
  }

  // "NAME VALUE" lines.
  static std::map<std::string, std::string> answers(const std::string& text) {
    std::map<std::string, std::string> result;
    std::istringstream lines(text);
    for (std::string name, value; lines >> name >> value;) result[name] = value;
    return result;
  }
  static std::set<std::string> words(const std::string& text) {
    std::istringstream stream(text);
    return {std::istream_iterator<std::string>(stream), {}};
  }
};

TEST_F(Guard, EveryChangingCallFailsWithErofsInAReadOnlySession) {
  const std::string before = head();
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{}, {"--xattr", "user"}, {"--opens", "daemon"}, {"--confine"}}) {
    std::vector<std::string> all = {"--read-only"};
    all.insert(all.end(), options.begin(), options.end());
    const ProcessResult result = run(all, "bin/probe change . && cat a.txt");
    EXPECT_EQ(result.status, 0) << result.err;
    auto said = answers(result.out);
    ASSERT_EQ(said.size(), 30u) << result.out;
    for (const char* by_descriptor : {"write", "ftruncate", "fallocate", "copy_file_range"}) {
      EXPECT_TRUE(said[by_descriptor] == "EBADF" || said[by_descriptor] == "EINVAL" || said[by_descriptor] == "EROFS")
          << by_descriptor << ' ' << said[by_descriptor];
      said.erase(by_descriptor);
    }
    for (const auto& [call, answer] : said) EXPECT_EQ(answer, "EROFS") << call;
    EXPECT_EQ(head(), before);
  }
}

TEST_F(Guard, AReadOnlyFileIsNotWrittenThroughAMapping) {
  for (const char* opens : {"none", "daemon"}) {
    const ProcessResult result = run({"--read-only", "--opens", opens}, "bin/probe map a.txt; cat a.txt");
    auto said = answers(result.out);
    EXPECT_EQ(said["map-shared-for-writing"], "EACCES");
    EXPECT_EQ(said["make-writable"], "EACCES");
    EXPECT_NE(said["write-by-proc-mem"], "ok");
    EXPECT_EQ(said["sync-private"], "ok");
    EXPECT_TRUE(result.out.ends_with("\na\n")) << result.out;
  }
}

TEST_F(Guard, ALinkThatLeadsOutCannotBeReadOrFollowed) {
  ASSERT_EQ(run("ln -s /etc/shadow shadow; ln -s ../outside up; ln -s dir/b.txt near; ln -s ../a.txt dir/back; "
                "ln -s dir/../../outside hidden; ln -s ../../a.txt dir/over; ln -s . here").status,
            0);
  shell("echo outside > outside", {.directory = directory_.path(), .environment = {}, .input = {}});
  shell("mkdir m", {.directory = directory_.path(), .environment = {}, .input = {}});
  const ProcessResult result =
      run({"--symlinks", "contained", "--mountpoint", file("m")},
          "bin/probe look shadow up near dir/back hidden dir/over here/a.txt; readlink near; readlink up; ln -s " +
              file("m") + "/a.txt inside; readlink inside; cat inside");
  auto said = answers(result.out);
  for (const char* contained : {"near", "dir/back", "here/a.txt"}) EXPECT_EQ(said[contained], "ok") << contained;
  for (const char* outside : {"shadow", "up", "hidden", "dir/over"}) EXPECT_EQ(said[outside], "EACCES") << outside;
  EXPECT_NE(result.out.find("dir/b.txt\n" + file("m") + "/a.txt\na\n"), std::string::npos) << result.out;
  EXPECT_NE(run({"--mountpoint", file("m")}, "cat up").out.find("outside"), std::string::npos)
      << "without --symlinks contained a link leads anywhere";
}

// git keeps any bytes as a link's target; the kernel ends it at a NUL.
TEST_F(Guard, ALinkThatNoSystemCallCouldMakeCannotBeReadOrFollowed) {
  shell("git clone -q data.git work && cd work && link() { printf '120000 blob %s\\t%s\\n' "
        "$(git hash-object -w --stdin) $1; } && up=$(printf '..\\0x' | link up) && "
        "long=$(printf './%2047s..' '' | sed 's, ,./,g' | link long) && empty=$(link empty < /dev/null) && "
        "tree=$( (git ls-tree HEAD; echo \"$up\"; echo \"$long\"; echo \"$empty\") | git mktree) && git push -q origin "
        "$(git -c user.name=x -c user.email=x@x commit-tree -p HEAD -m links $tree):main",
        {.directory = directory_.path(), .environment = {}, .input = {}});
  ASSERT_EQ(git("cat-file -s main:up"), "4");
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {"--symlinks", "contained"}, {"--symlinks", "any"}, {"--symlinks", "contained", "--confine"}}) {
    const ProcessResult result =
        run(options, "bin/probe look up long empty up/a.txt dir/b.txt; readlink up; mv up dir");
    EXPECT_EQ(result.status, 0) << result.err;
    auto said = answers(result.out);
    for (const char* name : {"up", "long", "empty", "up/a.txt"}) EXPECT_EQ(said[name], "EIO") << name;
    EXPECT_EQ(said["dir/b.txt"], "ok") << result.err;
    EXPECT_EQ(git("cat-file -s main:dir/up"), "4") << "a move keeps its bytes";
    ASSERT_EQ(run("mv dir/up up").status, 0);
  }
}

TEST_F(Guard, APrefixIsTheRootThatLinksMayNotLeave) {
  ASSERT_EQ(run("ln -s ../a.txt dir/back; ln -s b.txt dir/near").status, 0);
  const ProcessResult result =
      run({"--symlinks", "contained", "--path-prefix", "dir", "--trace", file("trace")}, "cat near; cat back");
  EXPECT_EQ(result.out, "b\n");
  EXPECT_NE(result.err.find("Permission denied"), std::string::npos) << result.err;
  const std::string traced = read("trace");
  for (const char* said : {"\"readlink\"", "\"dir/back\"", "\"symbolic links are contained\""})
    EXPECT_NE(traced.find(said), std::string::npos) << traced;
}

TEST_F(Guard, NoRaceOfLinksAndRenamesLeadsOut) {
  shell("echo outside > secret; mkdir m", {.directory = directory_.path(), .environment = {}, .input = {}});
  for (const char* opens : {"none", "daemon"}) {
    const ProcessResult result = run({"--symlinks", "contained", "--mountpoint", file("m"), "--opens", opens},
                                     "echo inside > secret; bin/probe race ../secret 2");
    auto said = answers(result.out);
    EXPECT_EQ(said["escaped"], "0") << result.out << result.err;
    EXPECT_GT(std::atol(said["read"].c_str()), 0) << "nothing was read at all";
  }
  const ProcessResult free = run({"--mountpoint", file("m")}, "echo inside > secret; bin/probe race ../secret escape");
  EXPECT_GT(std::atol(answers(free.out)["escaped"].c_str()), 0) << "the race is none: " << free.out << free.err;
}

TEST_F(Guard, AMoveThatWouldMakeALinkLeadOutIsRefused) {
  const ProcessResult result =
      run({"--symlinks", "contained"},
          "ln -s ../a.txt dir/l; mv dir/l l; ln -s ../../a.txt dir/sub/l; mv dir/sub sub; mkdir -p x/y; "
          "mv dir/sub x/sub && cat x/sub/l; ln x/sub/l l; ls");
  EXPECT_EQ(words(result.out), words("a a.txt bin dir x")) << result.out << result.err;
}

TEST_F(Guard, AConfinedCommandSeesTheMountAndWhatAProgramNeeds) {
  const ProcessResult result = run({"--confine"}, "pwd; ls -A /; echo $ESCROW_MOUNT; cat a.txt; echo new > made");
  EXPECT_EQ(result.status, 0) << result.err;
  std::set<std::string> expected = words("/sandbox dev etc proc sandbox tmp usr a");
  for (const char* name : {"bin", "sbin", "lib", "lib32", "lib64", "libx32"}) {
    if (::access(("/" + std::string(name)).c_str(), F_OK) == 0) expected.insert(name);
  }
  EXPECT_EQ(words(result.out), expected);
  EXPECT_EQ(content("made"), "new");

  const ProcessResult etc = run({"--confine"}, "find /etc ! -path '/etc/alternatives/*' | sort; cat /etc/passwd");
  const std::string name = ::getuid() == 0 ? "root" : "sandbox";
  const std::string ids = std::to_string(::getuid()) + ":" + std::to_string(::getgid());
  EXPECT_EQ(etc.out, "/etc\n/etc/alternatives\n/etc/group\n/etc/passwd\n" + name + ":x:" + ids + "::/tmp:/bin/sh\n");
}

TEST_F(Guard, AConfinedCommandFindsNothingOfTheMachine) {
  shell("echo theirs > theirs", {.directory = directory_.path(), .environment = {}, .input = {}});
  const ProcessResult result = run(
      {"--confine"}, "bin/probe look /etc/shadow /home /root /var /run /sys /mnt /opt /srv /boot " + file("theirs") +
                         " /proc/kcore /proc/kallsyms /proc/kmsg /proc/sysrq-trigger /proc/1/root/etc/shadow; "
                         "ls -A /tmp; ls /proc | grep -c '^[0-9]'; ls /proc/self/fd");
  auto said = answers(result.out);
  for (const auto& [path, answer] : said) {
    if (!path.starts_with('/')) continue;
    EXPECT_TRUE(answer == "ENOENT" || answer == "EACCES") << path << ' ' << answer;
  }
  EXPECT_EQ(said["/proc/1/root/etc/shadow"], "ENOENT");
  EXPECT_EQ(said["/home"], "ENOENT");
}

TEST_F(Guard, AConfinedCommandIsWithoutRightsEnvironmentNetworkAndOtherProcesses) {
  const ProcessResult result = run_process(
      run_command_line({"--confine", "--env", "GIVEN=yes"},
                       "grep -E '^Cap(Prm|Eff|Bnd)' /proc/self/status; env; tr '\\0' '\\n' < /proc/1/environ; "
                       "cat /proc/net/dev | grep -c :; echo 9 > /proc/sys/kernel/panic; echo 1 > /usr/made; "
                       "mkdir /made; python3 -c 'import fcntl; fcntl.ioctl(0, 0x5412, b\"x\")'"),
      {.directory = directory_.path(), .environment = {{"SECRET_TOKEN", "hunter2"}}, .input = {}});
  EXPECT_EQ(result.out.find("hunter2"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("GIVEN=yes"), std::string::npos);
  for (const char* set : {"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"})
    EXPECT_NE(result.out.find(set), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\n1\n"), std::string::npos) << "only a loopback: " << result.out;
  for (const char* refused : {"/proc/sys/kernel/panic: Read-only", "/usr/made: Read-only", "/made", "not permitted"})
    EXPECT_NE(result.err.find(refused), std::string::npos) << refused << ": " << result.err;
  EXPECT_NE(shell("cat /proc/sys/kernel/panic"), "9");
}

TEST_F(Guard, ACommandIsNotToldWhereTheRepositoryIs) {
  const std::vector<std::pair<std::string, std::string>> environment = {
      {"ESCROW_REPO", repository_}, {"ESCROW_HOST", ""}, {"ESCROW_TOKEN", "hunter2"}, {"KEPT", "yes"}};
  const ProcessOptions options{.directory = directory_.path(), .environment = environment, .input = {}};
  const auto said = [&](const std::vector<std::string>& more) {
    std::vector<std::string> line = {"run"};
    line.insert(line.end(), more.begin(), more.end());
    line.insert(line.end(), {"--", "sh", "-c", "env | grep -E '^(ESCROW_(REPO|HOST|TOKEN)|KEPT)='; true"});
    return run_escrow(line, options).out;
  };
  EXPECT_EQ(said({}), "KEPT=yes\n");
  EXPECT_EQ(said({"--confine"}), "");
  EXPECT_EQ(said({"--env", "ESCROW_REPO=" + repository_}), "KEPT=yes\nESCROW_REPO=" + repository_ + "\n")
      << "a command that is to use it is given it";
}

TEST_F(Guard, ACommandHasNoVariableThatTiesGitToARepository) {
  std::set<std::string> dropped = words(shell("git rev-parse --local-env-vars"));
  EXPECT_GT(dropped.size(), 10u);
  dropped.insert({"GIT_QUARANTINE_PATH", "GIT_NAMESPACE", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0"});
  ProcessOptions options{.directory = directory_.path(), .environment = {{"GIT_AUTHOR_NAME", "kept"}}, .input = {}};
  for (const std::string& name : dropped) options.environment.emplace_back(name, repository_);
  const auto given = [&](const std::vector<std::string>& more) {
    const ProcessResult result =
        run_process(run_command_line(more, "env | sed -n 's/^\\(GIT_[A-Z_0-9]*\\)=.*/\\1/p'"), options);
    EXPECT_EQ(result.status, 0) << result.err;
    std::set<std::string> names = words(result.out);
    EXPECT_EQ(names.contains("GIT_AUTHOR_NAME"), more.empty() || more.front() != "--confine") << result.out;
    std::erase_if(names, [&](const std::string& name) { return !dropped.contains(name); });
    return names;
  };
  EXPECT_EQ(given({}), std::set<std::string>());
  EXPECT_EQ(given({"--network", "none"}), std::set<std::string>());
  EXPECT_EQ(given({"--confine"}), std::set<std::string>());
  EXPECT_EQ(given({"--env", "GIT_DIR=x"}), std::set<std::string>({"GIT_DIR"})) << "asked for by its name";
}

TEST_F(Guard, AForkBombMeetsTheLimitOfItsRunAndNobodyElseDoes) {
  for (const std::vector<std::string>& how : std::vector<std::vector<std::string>>{{}, {"--confine"}}) {
    std::vector<std::string> options = {"--max-processes", "50", "--timeout", "6s", "--grace", "100ms"};
    options.insert(options.end(), how.begin(), how.end());
    const ProcessResult result =
        run(options, "exec 2> /dev/null; exec bash -c 'bomb() { bomb | bomb & }; bomb; while :; do bomb; done'");
    EXPECT_EQ(result.status, 124) << result.err;
    EXPECT_NE(result.err.find("more than 50 processes and threads at once"), std::string::npos) << result.err;
    EXPECT_TRUE(no_mount_left());
  }
  const ProcessResult enough = run({"--confine", "--max-processes", "2"}, "(true) && echo two; cat a.txt");
  EXPECT_EQ(enough.out, "two\na\n") << enough.err << "bubblewrap's own are not among them";
  for (const char* bad : {"0", "-1", "many", "4194305"}) {
    const ProcessResult refused = escrow({"run", "--max-processes", bad, "--", "true"});
    EXPECT_EQ(refused.status, 125) << bad;
    EXPECT_NE(refused.err.find("--max-processes"), std::string::npos) << refused.err;
  }
}

// What the kernel was told, as the command itself finds it: the quota of each period of 100 ms (cgroup v2, and v1).
constexpr const char* kCpuQuota =
    "cat /sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/cpu.max "
    "/sys/fs/cgroup/cpu$(sed -n 's/^[0-9]*:cpu\\(,cpuacct\\)*://p' /proc/self/cgroup)/cpu.cfs_quota_us 2> /dev/null; "
    "true";

TEST_F(Guard, ACommandHasAsMuchOfTheProcessorsAsItMay) {
  const ProcessResult half = run({"--cpus", "0.5"}, kCpuQuota);
  EXPECT_TRUE(half.out == "50000 100000\n" || half.out == "50000\n") << half.out << half.err;
  const ProcessResult more = run({"--cpus", "2.25"}, kCpuQuota);
  EXPECT_TRUE(more.out == "225000 100000\n" || more.out == "225000\n") << more.out << more.err;
  for (const char* bad : {"0", "-1", "many", "9000"}) {
    const ProcessResult refused = escrow({"run", "--cpus", bad, "--", "true"});
    EXPECT_EQ(refused.status, 125) << bad;
    EXPECT_NE(refused.err.find("--cpus"), std::string::npos) << refused.err;
  }
}

TEST_F(Guard, ACommandThatUsesItsMemoryUpIsRolledBackWhateverItMakesOfIt) {
  constexpr const char* kUses = "python3 -c 'b\"x\" * (200 << 20)'; echo x > new; exit 0";
  const ProcessResult result = run({"--memory", "64m"}, kUses);
  EXPECT_NE(result.status, 0);
  EXPECT_NE(result.err.find("memory"), std::string::npos) << result.err;
  EXPECT_EQ(run({"--memory", "1g"}, kUses).status, 0);
  for (const char* bad : {"0", "-1", "many", "1k"}) {
    const ProcessResult refused = escrow({"run", "--memory", bad, "--", "true"});
    EXPECT_EQ(refused.status, 125) << bad;
    EXPECT_NE(refused.err.find("--memory"), std::string::npos) << refused.err;
  }
}

TEST_F(Guard, AConfinedCommandInheritsNoDescriptor) {
  const ProcessResult result = run_process(
      {"sh", "-c", "exec 7< /etc/passwd; exec \"$@\"", "sh", ESCROW_BINARY, "--repo", repository_, "run",
       "--confine", "--", "sh", "-c", "test -e /proc/self/fd/7 && echo inherited; cat <&7"},
      {.directory = directory_.path(), .environment = {}, .input = {}});
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.status, 0);
}

TEST_F(Guard, ConfinedCommandsEndAsOthersDo) {
  EXPECT_EQ(run({"--confine"}, "echo x > y; exit 9").status, 9);
  EXPECT_FALSE(is_in_head("y"));
  EXPECT_EQ(escrow({"run", "--confine", "--", "no-such-program"}).status, 127);
  EXPECT_EQ(escrow({"run", "--confine", "--", "/etc/passwd"}).status, 126);
  EXPECT_EQ(run({"--confine"}, "kill -SEGV $$").status, 128 + 11);
  const ProcessResult late = run({"--confine", "--timeout", "15s"},
                                 "trap 'echo heard; exit 0' TERM; echo x > y; while :; do sleep 0.05; done");
  EXPECT_EQ(late.status, 124) << late.err;
  EXPECT_EQ(late.out, "heard\n") << "the command has its time of grace";
  EXPECT_TRUE(no_mount_left());
}

TEST_F(Guard, WhatAConfinedCommandLeavesBehindWritesNoMore) {
  const ProcessResult result =
      run({"--confine"}, "python3 -c 'import mmap, os\nf = open(\"mapped\", \"w+b\"); f.truncate(4096)\n"
                         "m = mmap.mmap(f.fileno(), 4096); m[0:5] = b\"early\"'; "
                         "(setsid sh -c 'sleep 60; while :; do echo late >> late; done' &) ; echo x > y");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(content("y"), "x");
  EXPECT_FALSE(is_in_head("late"));
  EXPECT_EQ(shell("git -C '" + repository_ + "' show main:mapped | head -c 5"), "early");
  EXPECT_TRUE(no_mount_left());
}

TEST_F(Guard, AnotherUserMayBeConfined) {
  if (::getuid() != 0) GTEST_SKIP() << "only root may run a command as another user";
  const ProcessResult result =
      run({"--confine", "--uid", "1234", "--gid", "4321"}, "id -u; id -g; id -G; echo x > y; stat -c %u:%g y");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "1234\n4321\n4321\n1234:4321\n");
  EXPECT_EQ(content("y"), "x");
}

TEST_F(Guard, TheMountpointOfAConfinedCommandIsWhereItSeesIt) {
  EXPECT_EQ(run({"--confine", "--mountpoint", "/data/set"}, "pwd").out, "/data/set\n");
  for (const char* bad : {"relative", "/usr/share", "/", "/a/../b", "/proc"}) {
    const ProcessResult result = run({"--confine", "--mountpoint", bad}, "true");
    EXPECT_EQ(result.status, 125) << bad;
    EXPECT_NE(result.err.find("--mountpoint"), std::string::npos) << result.err;
  }
}

TEST_F(Guard, ACommandWithoutANetworkHasOnlyALoopback) {
  EXPECT_EQ(run({"--network", "none"}, "grep -c : /proc/net/dev; cat a.txt; echo x > y").out, "1\na\n");
  EXPECT_EQ(content("y"), "x");
  EXPECT_EQ(run({"--confine", "--network", "host"}, "readlink /proc/self/ns/net").out,
            shell("readlink /proc/self/ns/net") + "\n");
}

TEST_F(Guard, RootWithoutANetworkIsNotBackInItByACall) {
  if (::getuid() != 0) GTEST_SKIP() << "only root has such calls";
  const std::string net = "/proc/" + std::to_string(::getpid()) + "/ns/net";
  const ProcessResult result = run({"--network", "none"},
                                   "readlink /proc/self/ns/net\n"
                                   "nsenter --net=" + net + " readlink /proc/self/ns/net\n"
                                   "nsenter -t 1 -n readlink /proc/self/ns/net\n"
                                   "unshare -U --map-root-user nsenter --net=" + net + " readlink /proc/self/ns/net\n"
                                   "mount -t sysfs none /sys && echo mounted\n"
                                   "mknod device b 8 0 && echo made\n"
                                   "su -s /bin/sh nobody -c 'id -u'\n"
                                   "grep ^CapBnd /proc/self/status\n"
                                   "python3 -c '\n"
                                   "import ctypes, os, socket\n"
                                   "libc = ctypes.CDLL(None, use_errno=True)\n"
                                   "print(\"ptrace\", libc.ptrace(16, " +
                                       std::to_string(::getpid()) + ", 0, 0), ctypes.get_errno())\n"
                                   "server = socket.socket(); server.bind((\"127.0.0.1\", 0)); server.listen()\n"
                                   "socket.create_connection(server.getsockname()); print(\"loopback\")'");
  const std::string ours = shell("readlink /proc/self/ns/net");
  EXPECT_EQ(result.out.find(ours), std::string::npos) << result.out << result.err;
  EXPECT_TRUE(result.out.starts_with("net:[")) << result.out;
  for (const char* word : {"mounted", "made"}) EXPECT_EQ(result.out.find(word), std::string::npos) << result.out;
  // What a program of root's needs it can do.
  EXPECT_NE(result.out.find("\n65534\n"), std::string::npos) << result.out << result.err;
  EXPECT_NE(result.out.find("CapBnd:\t00000000a00425fb\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("ptrace -1 1\nloopback\n"), std::string::npos) << result.out << result.err;
}

TEST_F(Guard, AnotherUserMayBeWithoutANetwork) {
  if (::getuid() != 0) GTEST_SKIP() << "only root may run a command as another user";
  const ProcessResult result = run({"--network", "none", "--uid", "1234", "--gid", "4321"},
                                   "id -u; grep -c : /proc/net/dev; grep CapEff /proc/self/status; echo x > y");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "1234\n1\nCapEff:\t0000000000000000\n");
}

TEST_F(Guard, WithoutBubblewrapConfiningIsRefusedBeforeAnythingIsOpened) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can hide a program";
  // A machine without the program, for this process only.
  const ProcessResult result = run_process(
      {"unshare", "-m", "sh", "-c",
       "mount --bind /dev/null \"$(command -v bwrap)\" && exec \"$@\"", "sh", ESCROW_BINARY, "--repo",
       repository_, "run", "--confine", "--", "true"},
      {.directory = directory_.path(), .environment = {}, .input = {}});
  EXPECT_EQ(result.status, 125);
  EXPECT_NE(result.err.find("install the package bubblewrap"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace escrow::test
