#include "tests/mount/cli_fixture.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

namespace escrow::test {

void EscrowCommands::SetUp() {
  if (::access("/dev/fuse", R_OK | W_OK) != 0) {
    if (std::getenv("REQUIRE_FUSE") != nullptr) FAIL() << "REQUIRE_FUSE is set and /dev/fuse cannot be opened";
    GTEST_SKIP() << "/dev/fuse cannot be opened";
  }
  shell("mkdir -p mnt in/dir/sub && echo a > in/a.txt && echo b > in/dir/b.txt && echo c > in/dir/sub/c.txt",
        {.directory = directory_.path(), .environment = {}, .input = {}});
  done({"init"});
  done({"import", file("in"), "--message", "first import"});
}

void EscrowCommands::TearDown() {
  if (is_mounted()) ::umount2(mountpoint_.c_str(), MNT_DETACH);
}

ProcessResult EscrowCommands::escrow(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), {"--repo", repository_});
  return run_escrow(arguments, {.directory = directory_.path(), .environment = {}, .input = {}});
}

std::string EscrowCommands::done(const std::vector<std::string>& arguments) const {
  ProcessResult result = escrow(arguments);
  EXPECT_EQ(result.status, 0) << arguments.front() << ": " << result.err << result.out;
  if (result.out.ends_with('\n')) result.out.pop_back();
  return result.out;
}

void EscrowCommands::refused(int status, std::string_view words, const std::vector<std::string>& arguments) const {
  const ProcessResult result = escrow(arguments);
  std::string line;
  for (const std::string& argument : arguments) line += argument + " ";
  EXPECT_EQ(result.status, status) << line << ": " << result.err;
  EXPECT_TRUE(result.err.starts_with("escrow: ")) << line << ": " << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << line << ": " << result.err;
  EXPECT_NE(result.err.find(words), std::string::npos) << line << ": " << result.err;
  EXPECT_EQ(result.out, "") << line;
}

std::string EscrowCommands::mount(std::vector<std::string> options) const {
  options.insert(options.begin(), {"mount", mountpoint_});
  return done(options);
}

void EscrowCommands::unmount_outside(const std::string& session) const {
  shell("umount '" + mountpoint_ + "'");
  EXPECT_TRUE(eventually([&] { return status_of(session, "attachment") == "none"; }));
}

std::string EscrowCommands::status_of(const std::string& session, const std::string& member) const {
  const std::string json = done({"status", session, "--json"});
  const std::string key = "\"" + member + "\":";
  const std::size_t at = json.find(key);
  if (at == std::string::npos) return "(no " + member + " in " + json + ")";
  std::string value = json.substr(at + key.size());
  if (value.starts_with('"')) return value.substr(1, value.find('"', 1) - 1);
  return value.substr(0, value.find_first_of(",}"));
}

std::string EscrowCommands::git(const std::string& arguments) const {
  return shell("git -c safe.directory='*' --git-dir '" + repository_ + "' " + arguments);
}

void EscrowCommands::write(const std::string& path, std::string_view text) const {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  EXPECT_FALSE(stream.fail()) << path;
}

std::string EscrowCommands::read(const std::string& path) const {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

bool EscrowCommands::is_mounted() const {
  struct stat inside {
  }, outside{};
  if (::stat(mountpoint_.c_str(), &inside) != 0) return true;  // a dead mount
  return ::stat(directory_.path().c_str(), &outside) == 0 && inside.st_dev != outside.st_dev;
}

bool EscrowCommands::eventually(const std::function<bool()>& condition) const {
  for (int tries = 0; tries < 1200; ++tries) {  // a minute, for a machine under load
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

}  // namespace escrow::test
