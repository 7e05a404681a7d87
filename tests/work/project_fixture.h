// A person's project, with a checkout of its own in which commands are given.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/escrow_process.h"
#include "tests/support/temporary_directory.h"

namespace escrow::test {

inline bool has(const std::string& text, std::string_view words) { return text.find(words) != std::string::npos; }

class Project : public testing::Test {
 protected:
  // Skips, or with REQUIRE_FUSE fails, where nothing can be mounted. Else `files` makes the files of the first commit.
  void set_up(const std::string& files) {
    if (::access("/dev/fuse", R_OK | W_OK) != 0) {
      if (std::getenv("REQUIRE_FUSE") != nullptr) FAIL() << "REQUIRE_FUSE is set and /dev/fuse cannot be opened";
      GTEST_SKIP() << "/dev/fuse cannot be opened";
    }
    in_project("git init -q -b main . && git config user.name u && git config user.email u@example.invalid && " +
               files + " && git add . && git commit -qm first");
    EXPECT_EQ(escrow({"init"}).status, 0);
  }

  ProcessOptions here() const { return {.directory = project_, .environment = {}, .input = {}}; }
  std::string in_project(const std::string& text) const { return shell(text, here()); }
  ProcessResult escrow(const std::vector<std::string>& arguments) const { return run_escrow(arguments, here()); }
  std::string git(const std::string& arguments) const { return in_project("git " + arguments); }
  // What git says of files, index and HEAD together; nothing: they are the same.
  std::string status() const { return git("status --porcelain"); }
  // Nobody can make or remove a file in this directory of the project, root neither, until it can be again.
  void make_unwritable(const std::string& directory) const {
    in_project(::geteuid() != 0 ? "chmod a-w " + directory
                                : "mount --bind " + directory + " " + directory + " && mount -o remount,bind,ro " +
                                      directory);
  }
  void make_writable(const std::string& directory) const {
    in_project((::geteuid() == 0 ? "umount " : "chmod u+w ") + directory);
  }
  // Until no git of a command, ended or not, is changing a work tree.
  void wait_for_the_turn() const {
    const int turn = ::open((project_ + "/.git/escrow/checkouts.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct flock whole = {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    EXPECT_EQ(::fcntl(turn, F_OFD_SETLKW, &whole), 0);
    ::close(turn);
  }

  support::TemporaryDirectory directory_;
  std::string project_ = [this] {
    shell("mkdir '" + directory_.path() + "/project'");
    return directory_.path() + "/project";
  }();
};

}  // namespace escrow::test
