#include "tests/mount/tools_fixture.h"

#include <chrono>

namespace escrow::test {
namespace {

// Programs that look beyond their working directory see the same everywhere.
const std::string kPrologue =
    "set -eu; umask 022; export LC_ALL=C TZ=UTC GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=e "
    "GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=e GIT_AUTHOR_DATE='1700000000 +0000' "
    "GIT_COMMITTER_DATE='1700000000 +0000'\n";

}  // namespace

std::string Tools::in_mount(const std::vector<std::string>& options, const std::string& script) {
  const std::string before = head();
  const ProcessResult result = run_process(
      run_command_line(options, kPrologue + script),
      {.directory = directory_.path(), .environment = {{"OUT", directory_.path()}}, .input = {},
       .timeout = std::chrono::seconds(180)});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_NE(head(), before) << "nothing was committed: " << result.err;
  return result.out;
}

void Tools::same_as_on_the_host(const std::string& script) {
  const std::string host = file("host");
  shell("mkdir '" + host + "'");
  shell("git -c safe.directory='*' --git-dir '" + repository_ + "' archive main | tar -x -C '" + host + "'");
  const ProcessResult expected =
      run_process({"sh", "-c", kPrologue + script},
                  {.directory = host, .environment = {{"OUT", directory_.path()}}, .input = {}});
  ASSERT_EQ(expected.status, 0) << "on the host itself: " << expected.out << expected.err;
  EXPECT_EQ(in_mount(script), expected.out);
  EXPECT_EQ(manifest(exported()), manifest(host));
}

std::string Tools::exported() const {
  const std::string directory = shell("mktemp -d '" + directory_.path() + "/exported-XXXXXX'");
  shell("git -c safe.directory='*' --git-dir '" + repository_ + "' archive main | tar -x -C '" + directory + "'");
  return directory;
}

std::string Tools::manifest(const std::string& directory) {
  return shell(
      "export LC_ALL=C; find . -name .git -prune -o -type f -print0 | sort -z | xargs -0r sha256sum; "
      "find . -name .git -prune -o -type l -printf '%p -> %l\\n' | sort; "
      "find . -name .git -prune -o -type f -perm -u+x -printf '%p is executable\\n' | sort",
      {.directory = directory, .environment = {}, .input = {}});
}

}  // namespace escrow::test
