// No variable that a caller gives may make a program that runs outside of the sandbox load or execute something (H1):
// each variable is given once with what it would need in the branch, and first shown to work outside.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/mount/run_fixture.h"

namespace escrow::test {
namespace {

struct Attack {
  std::string variable, value;
  // A program outside that is led astray by it, so that the test would notice; empty: the variable alone executes
  // nothing, and only must not be there.
  std::string victim;
};

// Values are as seen from the root of the branch, which is the working directory of whatever starts there.
std::vector<Attack> attacks() {
  return {
      {"LD_PRELOAD", "bin/canary.so", "true"},
      {"LD_AUDIT", "bin/canary.so", "true"},
      {"GCONV_PATH", "bin/gconv", "echo x | iconv -f CANARY// -t UTF-8"},
      {"PATH", "bin/programs", "env; sh -c true"},
      {"BASH_ENV", "bin/script", "bash -c true"},
      {"PYTHONPATH", "bin/python", "python3 -c pass"},
      {"GIT_EXEC_PATH", "bin/programs", "git canary"},
      {"LD_LIBRARY_PATH", "bin/libraries", ""},
      {"GLIBC_TUNABLES", "glibc.malloc.check=3:glibc.rtld.optional_static_tls=0x60000", ""},
      {"MALLOC_TRACE", "bin/trace", ""},
      {"LOCPATH", "bin/locale", ""},
      {"LANGUAGE", "bin/locale", ""},
      {"NLSPATH", "bin/locale/%N", ""},
      {"TMPDIR", "bin", ""},
      {"ENV", "bin/script", ""},
      {"HOSTALIASES", "bin/script", ""},
      {"DOCKER_HOST", "unix://bin/docker.sock", ""},
      {"DOCKER_CONFIG", "bin", ""},
      {"CONTAINERS_CONF", "bin/script", ""},
      {"XDG_RUNTIME_DIR", "bin", ""},
  };
}

// Nothing of a process that has ended, also when it ends between the opening and the reading.
std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

long parent_of(long pid) {
  const std::string status = text_of("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t end = status.rfind(')');
  return end == std::string::npos ? 0 : std::atol(status.c_str() + end + 4);
}

class GuardEnvironment : public EscrowRun {
 protected:
  void SetUp() override {
    EscrowRun::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    // A script stands for every program that might be looked for in PATH.
    shell("mkdir -p attack/gconv attack/programs attack/python\n"
          "echo \"$MARK\" > attack/mark; cp '" GUARD_CANARY "' attack/canary.so\n"
          "cp attack/canary.so attack/gconv/CANARY.so\n"
          "echo 'module CANARY// INTERNAL CANARY 1' > attack/gconv/gconv-modules\n"
          "printf '#!/bin/sh\\n/usr/bin/touch \"%s\"\\nexec /usr/bin/true\\n' \"$MARK\" > attack/script\n"
          "printf 'open(\"%s\", \"w\")\\n' \"$MARK\" > attack/python/sitecustomize.py\n"
          "for program in env sh bash setpriv bwrap docker podman git git-canary fusermount3 mount umount python3; do\n"
          "  cp attack/script attack/programs/$program; done\n"
          "chmod -R a+rx attack",
          {.directory = directory_.path(), .environment = {{"MARK", file("mark")}}, .input = {}});
    ASSERT_EQ(escrow({"import", file("attack"), "--path-prefix", "bin", "--message", "attacks"}).status, 0);
    shell("mkdir outside && cp -r attack outside/bin",
          {.directory = directory_.path(), .environment = {}, .input = {}});
  }

  bool is_marked() {
    const bool found = has("mark");
    ::unlink(file("mark").c_str());
    return found;
  }
};

TEST_F(GuardEnvironment, NothingOutsideIsLoadedOrExecutedByAVariableOfTheCommand) {
  for (const Attack& attack : attacks()) {
    SCOPED_TRACE(attack.variable);
    if (!attack.victim.empty()) {
      run_process({"/bin/sh", "-c", attack.victim},
                  {.directory = file("outside"), .environment = {{attack.variable, attack.value}}, .input = {}});
      EXPECT_TRUE(is_marked()) << "the attack is none: outside it does nothing";
    }
    for (const std::vector<std::string>& options :
         std::vector<std::vector<std::string>>{{"--confine"}, {"--confine", "--network", "host"}}) {
      std::vector<std::string> line = {"run", "--env", attack.variable + "=" + attack.value};
      line.insert(line.end(), options.begin(), options.end());
      line.insert(line.end(), {"--", "/bin/sh", "-c", "/usr/bin/cat a.txt; echo \"$" + attack.variable + "\""});
      const ProcessResult result = escrow(line);
      EXPECT_FALSE(is_marked()) << "a program outside of the sandbox was led astray";
      EXPECT_EQ(result.out, "a\n" + attack.value + "\n") << result.err;
    }
  }
}

TEST_F(GuardEnvironment, AVariableOfTheLoaderWorksInsideTheSandbox) {
  const ProcessResult result = escrow({"run", "--confine", "--env", "LD_PRELOAD=bin/canary.so", "--", "/bin/sh", "-c",
                                       "ls /tmp/canary-inside"});
  EXPECT_EQ(result.out, "/tmp/canary-inside\n") << result.err;
  EXPECT_FALSE(is_marked());
}

bool is_below(long pid, long top) {
  while (pid > 1 && pid != top) pid = parent_of(pid);
  return pid == top;
}

// "/proc/PID" of all below `top`, itself included.
std::vector<std::string> processes_below(pid_t top) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const long pid = std::atol(entry.path().filename().c_str());
    if (pid > 0 && is_below(pid, top)) found.push_back(entry.path());
  }
  return found;
}

bool sees_the_machine(const std::string& process) {
  std::error_code gone;
  return std::filesystem::read_symlink(process + "/ns/mnt", gone) == std::filesystem::read_symlink("/proc/self/ns/mnt");
}

TEST_F(GuardEnvironment, NoProcessOutsideHasTheCommandsEnvironmentOrAFileOfItsBranchMapped) {
  std::vector<std::string> options = {"--confine"};
  for (const Attack& attack : attacks()) {
    // With such values the shell would not start.
    if (attack.variable == "PATH" || attack.variable == "LD_PRELOAD" || attack.variable == "LD_AUDIT") continue;
    options.insert(options.end(), {"--env", attack.variable + "=" + attack.value + "-marked-0451"});
  }
  options.insert(options.end(), {"--env", "LD_PRELOAD=bin/canary.so"});
  BackgroundRun run(run_command_line(options, "echo > started; exec sleep 1000"), file("err"));
  ASSERT_TRUE(eventually([&] {
    const std::vector<std::string> all = processes_below(run.pid());
    return std::any_of(all.begin(), all.end(), [](const auto& each) { return text_of(each + "/comm") == "sleep\n"; });
  })) << read("err");
  std::set<std::string> programs;
  for (const std::string& process : processes_below(run.pid())) {
    if (!sees_the_machine(process)) continue;
    const std::string program = text_of(process + "/comm");
    SCOPED_TRACE(process + " " + program);
    programs.insert(program);
    EXPECT_EQ(text_of(process + "/environ").find("marked-0451"), std::string::npos);
    EXPECT_EQ(text_of(process + "/maps").find("canary"), std::string::npos);
    if (program == "bwrap\n") {
      EXPECT_EQ(text_of(process + "/cmdline").find("marked-0451"), std::string::npos) << "for everybody to read";
    }
  }
  EXPECT_TRUE(programs.contains("bwrap\n") && programs.contains("escrow-run\n")) << "they are outside";
}

}  // namespace
}  // namespace escrow::test
