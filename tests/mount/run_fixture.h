// `escrow run` as a person runs it: the built binary, a repository of its own with a few files, the real kernel.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/escrow_process.h"
#include "tests/support/temporary_directory.h"

namespace escrow::test {

class EscrowRun : public testing::Test {
 protected:
  // A bare repository whose main has a.txt, dir/b.txt and dir/sub/c.txt.
  void SetUp() override;

  // `escrow --repo REPO run OPTIONS -- sh -c SCRIPT`
  ProcessResult run(const std::vector<std::string>& options, const std::string& script);
  ProcessResult run(const std::string& script) { return run({}, script); }
  // `escrow --repo REPO ARGUMENTS`
  ProcessResult escrow(std::vector<std::string> arguments);
  std::vector<std::string> run_command_line(const std::vector<std::string>& options, const std::string& script) const;

  std::string git(const std::string& arguments) const;
  std::string head() const { return git("rev-parse main"); }
  // Of a file at the branch's head.
  std::string content(const std::string& path) const { return git("show main:" + path); }
  bool is_in_head(const std::string& path) const;
  std::string file(const std::string& name) const { return directory_.path() + "/" + name; }
  std::string read(const std::string& name) const;
  bool eventually(const std::function<bool()>& condition) const;
  bool has(const std::string& name) const;
  // No session's mount is left, nor a process with `mark` on its command line.
  bool no_mount_left() const;

  support::TemporaryDirectory directory_;
  std::string repository_ = directory_.path() + "/data.git";
};

// A run in a process of its own, which the test can signal.
class BackgroundRun {
 public:
  BackgroundRun(const std::vector<std::string>& command_line, const std::string& stderr_file);
  ~BackgroundRun();
  pid_t pid() const { return pid_; }
  // 128 + n when signal n killed it.
  int wait();

 private:
  pid_t pid_;
};

std::string last_line(const std::string& text);

}  // namespace escrow::test
