// The removal of a session's directory without a descriptor left. In a program that no sanitizer is built into:
// UndefinedBehaviorSanitizer looks at objects through pipes, and blames an object when it can make none.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "session/base/error.h"
#include "storage/staging/file_session_directories.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Error;
using session::SessionId;

TEST(SessionDirectories, AProcessThatRunsOutOfDescriptorsFailsToRemoveAndSaysSo) {
  support::TemporaryDirectory root;
  support::FakeObjectStore store;
  FileSessionDirectories directories(
      root.path(), [&](const std::string&) { return std::make_unique<support::FakeQuarantine>(store); });
  struct rlimit before {};
  ::getrlimit(RLIMIT_NOFILE, &before);
  int failures = 0;
  for (rlim_t left = 0; left < 6; ++left) {
    const SessionId id = SessionId::generate();
    auto held = directories.create(id);
    fs::create_directories(held->path() + "/staging/deep");
    std::ofstream(held->path() + "/staging/deep/file") << "x";
    const int next = ::dup(0);
    ::close(next);
    const struct rlimit few = {static_cast<rlim_t>(next) + left, before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
    std::string said;
    try {
      held->remove();
    } catch (const Error& error) {
      said = error.what();
    }
    ::setrlimit(RLIMIT_NOFILE, &before);
    if (!said.empty()) {
      ++failures;
      EXPECT_NE(said.find("Too many open files"), std::string::npos) << said;
      held->remove();
    }
    EXPECT_FALSE(fs::exists(directories.path_of(id)));
  }
  EXPECT_GT(failures, 2);
}

}  // namespace
}  // namespace escrow::storage
