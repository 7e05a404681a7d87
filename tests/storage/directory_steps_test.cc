// What others do to a session's directory between two system calls of its removal.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "storage/staging/file_session_directories.h"
#include "tests/support/fake_object_store.h"
#include "tests/support/system_calls.h"
#include "tests/support/temporary_directory.h"

namespace escrow::storage {
namespace {

// A recovery opens the directory before its removal ends, removes it first, and its id is created anew.
TEST(SessionDirectorySteps, ARemovalTakesNoLockOfASessionThatWasJustCreated) {
  const support::TemporaryDirectory root;
  support::FakeObjectStore store;
  FileSessionDirectories directories(
      root.path(), [&store](const std::string&) { return std::make_unique<support::FakeQuarantine>(store); });
  const session::SessionId id = session::SessionId::generate();
  const auto held = directories.create(id);
  std::unique_ptr<session::SessionDirectory> recovery, fresh;
  bool is_removed = false;
  {
    const support::WatchedSystemCalls watched([&](const support::SystemCall& call) {
      if (call.name == "rmdir" && !recovery) {
        recovery = directories.try_open(id);
      } else if (call.name == "open" && recovery && !is_removed) {
        recovery->remove();
        is_removed = true;
      } else if (is_removed && !fresh) {
        fresh = directories.create(id);
      }
      return 0;
    });
    held->remove();
  }
  ASSERT_TRUE(is_removed);
  if (!fresh) fresh = directories.create(id);
  EXPECT_TRUE(std::filesystem::exists(fresh->path() + "/lock"));
  EXPECT_TRUE(directories.is_held(id));
}

}  // namespace
}  // namespace escrow::storage
