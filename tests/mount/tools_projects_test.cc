// Programs that keep a state of their own in many files: git, SQLite, a build; and a file too large for memory.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "tests/mount/cli_fixture.h"
#include "tests/mount/tools_fixture.h"

namespace escrow::test {
namespace {

using ToolsProjects = Tools;
using ToolsMemory = EscrowCommands;

TEST_F(ToolsProjects, GitWorksInsideAndItsDirectoryIsLeftOutAndNamed) {
  const std::string said = in_mount({"--result", file("result.json")}, R"sh(
git init -q -b main project; cd project; seq 1 1000 > numbers; mkdir src; echo code > src/code; ln -s numbers link
git add .; git commit -q -m one; echo more >> numbers; git commit -q -a -m two; git branch side; git gc -q
git fsck --strict; git status --porcelain; cd ..; git clone -q project clone; git clone -q --bare project bare.git
cd clone; git fsck --strict; git log --format=%s; git checkout -q -b other; git rm -q src/code; git commit -q -m three
git stash list; git push -q ../bare.git other; git -C ../bare.git log --format=%s other; git diff --exit-code
cp -a ../project/.git "$OUT/project.git"
)sh");
  EXPECT_EQ(said, "two\none\nthree\ntwo\none\n");
  const std::string result = read("result.json");
  EXPECT_NE(result.find("project/.git"), std::string::npos) << result;
  EXPECT_NE(result.find("clone/.git"), std::string::npos) << result;
  EXPECT_FALSE(is_in_head("project/.git"));
  EXPECT_TRUE(is_in_head("project/src/code"));
  EXPECT_FALSE(is_in_head("clone/src/code"));
  EXPECT_TRUE(is_in_head("bare.git/HEAD"));
  git("fsck --strict");
  // The work tree that was committed as content is still what its repository says.
  EXPECT_EQ(in_mount("git --git-dir=\"$OUT/project.git\" --work-tree=project status --porcelain; touch seen"), "");
}

class ToolsSqlite : public Tools, public testing::WithParamInterface<const char*> {};

TEST_P(ToolsSqlite, TwoWritersAndAnIntegrityCheck) {
  const std::string mode = GetParam();
  in_mount("sqlite3 db 'pragma journal_mode=" + mode + R"sh(; create table t (writer, n, text);' > mode
writer() {
  i=0
  while [ $i -lt 40 ]; do
    echo ".timeout 150000
      begin immediate; insert into t select $1, $i, hex(randomblob(500)); commit;"
    i=$((i+1))
  done | sqlite3 -bail db
}
writer 1 & one=$!; writer 2 & two=$!; wait $one; wait $two
test "$(sqlite3 db 'pragma integrity_check')" = ok)sh");
  EXPECT_EQ(content("mode"), mode);
  git("show main:db > '" + file("db") + "'");
  EXPECT_EQ(shell("sqlite3 '" + file("db") +
                  "' 'pragma integrity_check; select writer, count(*), sum(n) from t group by writer order by writer'"),
            "ok\n1|40|780\n2|40|780");
}

INSTANTIATE_TEST_SUITE_P(JournalModes, ToolsSqlite, testing::Values("wal", "delete"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_F(ToolsProjects, CmakeNinjaAndMakeBuildAProject) {
  const std::string sources = ESCROW_SOURCE_DIR "/session";
  const std::string said = in_mount("mkdir project; cp -a '" + sources + "' project/; cd project\n" + R"sh(
cat > CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.25)
project(inner LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_FLAGS "-O0")
add_library(inner STATIC session/base/ids.cc session/base/repo_path.cc)
target_include_directories(inner PUBLIC ${CMAKE_SOURCE_DIR})
add_executable(main main.cc)
target_link_libraries(main PRIVATE inner)
END
cat > main.cc <<'END'
#include <iostream>
#include "session/base/repo_path.h"
int main() { std::cout << escrow::session::RepoPath::parse("built/here", "path").text() << '\n'; }
END
cmake -G Ninja -B by-ninja > cmake.log; ninja -C by-ninja > ninja.log; by-ninja/main; ninja -C by-ninja | tail -1
touch main.cc; ninja -C by-ninja -n | grep -c Building
cmake -G 'Unix Makefiles' -B by-make > cmake.log; make -C by-make -j2 > make.log; by-make/main
make -C by-make > again.log; ! grep Building again.log
)sh");
  EXPECT_EQ(said, "built/here\nninja: no work to do.\n1\nbuilt/here\n");
  const std::string out = exported();
  EXPECT_EQ(shell("'" + out + "/project/by-ninja/main'"), "built/here");
  EXPECT_EQ(shell("'" + out + "/project/by-make/main'"), "built/here");
  EXPECT_EQ(shell("diff -r '" + out + "/project/session' '" + sources + "'"), "");
}

TEST_F(ToolsProjects, ACommittedCmakeTreeGoesOnBuildingInTheNextRun) {
  in_mount("printf 'cmake_minimum_required(VERSION 3.25)\\nproject(p LANGUAGES C)\\nadd_executable(p p.c)\\n' "
           "> CMakeLists.txt; echo 'int main(void) { return 0; }' > p.c; cmake -G Ninja -B built > log; pwd > where");
  // CMake refuses a tree that was configured in another directory.
  EXPECT_EQ(in_mount("pwd | diff - where; ninja -C built > log; built/p; echo built"), "built\n");
}

// Peak resident memory of a program that runs to its end.
class Measured {
 public:
  explicit Measured(const std::vector<std::string>& command_line) : pid_(::fork()) {
    if (pid_ != 0) return;
    std::vector<char*> arguments;
    for (const std::string& argument : command_line) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  ~Measured() {
    if (pid_ < 0) return;  // a failed test leaves no process behind
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  long peak_kib() {
    int status = 0;
    rusage usage{};
    EXPECT_EQ(::wait4(pid_, &status, 0, &usage), pid_);
    EXPECT_EQ(status, 0);
    pid_ = -1;
    return usage.ru_maxrss;
  }

 private:
  pid_t pid_;
};

TEST_F(ToolsMemory, AFileOf256MibIsImportedEditedAndCommittedInLessMemoryThanItsSize) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr long kLimitKib = 4L << 20;  // the sanitizers' own memory
#else
  constexpr long kLimitKib = 256'000'000 / 1024;
#endif
  const auto sum_of = [](const std::string& path) { return shell("sha256sum < '" + path + "'"); };
  shell("head -c 256M /dev/urandom > in/big", {.directory = directory_.path(), .environment = {}, .input = {}});
  EXPECT_LT(Measured({ESCROW_BINARY, "--repo", repository_, "import", file("in")}).peak_kib(), kLimitKib);

  Measured host({ESCROW_BINARY, "--repo", repository_, "mount", mountpoint_, "--foreground"});
  ASSERT_TRUE(eventually([&] { return is_mounted(); }));
  EXPECT_EQ(sum_of(in_mount("big")), sum_of(file("in/big")));
  for (const std::string& copy : {in_mount("big"), file("in/big")})
    shell("printf '\\125' | dd of='" + copy + "' bs=1 seek=134217733 conv=notrunc status=none");
  const std::string expected = sum_of(file("in/big"));
  EXPECT_EQ(sum_of(in_mount("big")), expected);
  const std::string sessions = done({"sessions", "--open", "--json"});
  const std::string session = sessions.substr(sessions.find("\"session\":\"") + 11, 16);
  EXPECT_LT(Measured({ESCROW_BINARY, "--repo", repository_, "commit", session}).peak_kib(), kLimitKib);
  ASSERT_TRUE(eventually([&] { return !is_mounted(); })) << "the commit did not end the session";
  EXPECT_LT(host.peak_kib(), kLimitKib);
  EXPECT_EQ(git("cat-file blob main:big | sha256sum"), expected);
}

}  // namespace
}  // namespace escrow::test
