// The fixture of the POSIX tests: each scenario runs on the mount and in a directory of the host (ext4 where the tests
// are judged), as root and as an ordinary user, and must see the same. One mount serves a whole test suite.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/mount/scene.h"
#include "tests/support/mounted_tree.h"
#include "tests/support/temporary_directory.h"

namespace escrow::support {

class Differential : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (fuse_missing() == nullptr) tree_ = mount_tree();
  }
  static void TearDownTestSuite() { tree_.reset(); }
  void SetUp() override { ESCROW_NEEDS_FUSE(); }

  // As root and as an ordinary user.
  static void compare(const Scenario& scenario) { compare(scenario, {0, kNobody}); }
  static void compare_as_root(const Scenario& scenario) { compare(scenario, {0}); }
  // On the mount alone, for what is different on purpose; returns the transcript.
  static std::string on_mount(const Scenario& scenario, unsigned uid = 0) {
    return perform(scenario, prepared(tree_->path(), uid), uid);
  }
  static MountedTree& tree() { return *tree_; }
  static void use(std::unique_ptr<MountedTree> tree) { tree_ = std::move(tree); }

 private:
  static void compare(const Scenario& scenario, const std::vector<unsigned>& users) {
    for (const unsigned uid : users) {
      const TemporaryDirectory plain;
      ASSERT_EQ(0, chmod(plain.path().c_str(), 0755));
      const std::string expected = perform(scenario, prepared(plain.path(), uid), uid);
      EXPECT_NE("", expected);
      EXPECT_EQ(expected, perform(scenario, prepared(tree_->path(), uid), uid)) << "as user " << uid;
    }
  }

  // A fresh directory that belongs to `uid`.
  static std::string prepared(const std::string& parent, unsigned uid) {
    std::string path = parent + "/case-XXXXXX";
    if (mkdtemp(path.data()) == nullptr || chmod(path.c_str(), 0755) != 0 || chown(path.c_str(), uid, uid) != 0) {
      ADD_FAILURE() << "cannot prepare " << path << ": " << errno_name(errno);
    }
    return path;
  }

  static inline std::unique_ptr<MountedTree> tree_;
};

}  // namespace escrow::support
