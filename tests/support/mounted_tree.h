// A file system on a real FUSE mount, for the tests of POSIX behaviour. Two programs run the same tests: over
// the overlay of a session (mounted_session.cc) and over a host directory (tests/fuse), which tells a fault of the
// adapter from one of the overlay. Not thread-safe; unmounts when destroyed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fuse/mount.h"

namespace escrow::support {

class MountedTree {
 public:
  virtual ~MountedTree() = default;
  virtual const std::string& path() const = 0;
  virtual fuse::Mount& mount() = 0;
  // Nodes of regular files that the kernel may hold dirty: what Mount::flush wants.
  virtual std::vector<session::NodeId> files() = 0;
  // The bytes of a regular file below the mount's root as the file system has them, without asking the kernel.
  virtual std::string stored_bytes(const std::string& name) = 0;
  // A number of files that it takes in seconds.
  virtual int many_files() const { return 2000; }
};

// ESCROW_TEST_IO in the environment: "daemon" (opens reach the daemon), "writeback", "passthrough", or not set: the
// default. So the same tests run in each mode.
fuse::IoMode io_of_environment();

struct TreeOptions {
  // The base: paths ("a/b.txt") and contents of regular files.
  std::map<std::string, std::string> base;
  bool allow_other = true;
  bool xattrs = false;
  bool read_only = false;
  fuse::IoMode io = io_of_environment();
  unsigned threads = 4;
};

std::unique_ptr<MountedTree> mount_tree(const TreeOptions& options = {});

// Why mount tests cannot run here; nullptr when they can. With REQUIRE_FUSE=1 in the environment they must.
const char* fuse_missing();
bool fuse_required();

// False with ESCROW_IO_URING=off in the environment, which the command line obeys, too.
bool io_uring_wanted();

}  // namespace escrow::support

// At the start of a test or of SetUp.
#define ESCROW_NEEDS_FUSE()                                                          \
  if (const char* why = ::escrow::support::fuse_missing()) {                            \
    if (::escrow::support::fuse_required()) FAIL() << why << ", and REQUIRE_FUSE is 1"; \
    GTEST_SKIP() << why;                                                             \
  }                                                                                  \
  static_assert(true)
