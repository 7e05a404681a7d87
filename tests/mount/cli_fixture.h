// The commands as a person uses them: the built binary, a repository of its own, the real kernel.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/escrow_process.h"
#include "tests/support/temporary_directory.h"

namespace escrow::test {

class EscrowCommands : public testing::Test {
 protected:
  // A bare repository with one commit on main: a.txt, dir/b.txt, dir/sub/c.txt; and an empty directory `mnt`.
  void SetUp() override;
  // Nothing of a test stays mounted.
  void TearDown() override;

  // `escrow --repo REPOSITORY ARGUMENTS`
  ProcessResult escrow(std::vector<std::string> arguments) const;
  // The same, expected to succeed: its standard output without the last newline.
  std::string done(const std::vector<std::string>& arguments) const;
  // The same, expected to fail with `status` and one sentence that holds `words`.
  void refused(int status, std::string_view words, const std::vector<std::string>& arguments) const;

  // Mounts on `mnt`; the session's id.
  std::string mount(std::vector<std::string> options = {}) const;
  // umount(8), and until the host process has let go of the session.
  void unmount_outside(const std::string& session) const;
  // One member of `escrow status --json`, as the shell's sed would find it.
  std::string status_of(const std::string& session, const std::string& member) const;

  std::string git(const std::string& arguments) const;
  std::string head() const { return git("rev-parse main"); }
  std::string content(const std::string& path) const { return git("show main:" + path); }
  std::string file(const std::string& name) const { return directory_.path() + "/" + name; }
  std::string in_mount(const std::string& name) const { return mountpoint_ + "/" + name; }
  void write(const std::string& path, std::string_view text) const;
  std::string read(const std::string& path) const;
  bool is_mounted() const;
  bool eventually(const std::function<bool()>& condition) const;

  support::TemporaryDirectory directory_;
  std::string repository_ = directory_.path() + "/data.git";
  std::string mountpoint_ = directory_.path() + "/mnt";
};

}  // namespace escrow::test
