// What PUT and DELETE of a session's file say is on disk when they have said it.
#include "daemon/host/session_files.h"

#include "tests/session/overlay_fixture.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::Error;
using session::RepoPath;

class SessionFilesTest : public session::OverlayTest {
 protected:
  void put(const char* path, std::string_view text) {
    const auto read = [=](std::uint64_t offset, std::span<std::byte> out) {
      const auto rest = session::bytes_of(text).subspan(offset);
      const std::size_t count = std::min(rest.size(), out.size());
      std::copy_n(rest.begin(), count, out.begin());
      return count;
    };
    const SessionFiles::Content content{.size_bytes = text.size(), .read = read, .executable = {}};
    SessionFiles(*overlay, nullptr).write(path_of(path), content, {});
  }
  void remove(const char* path) { SessionFiles(*overlay, nullptr).remove(path_of(path)); }

 private:
  static RepoPath path_of(const char* path) { return RepoPath::parse(path, "the path of the test"); }
};

TEST_F(SessionFilesTest, WhatWasPutIsThereAfterAPowerLoss) {
  put("a/new", "new bytes");
  put("a/one", "other bytes");
  lose_power();
  EXPECT_EQ(read(node("a/new")), "new bytes");
  EXPECT_EQ(read(node("a/one")), "other bytes");
}

TEST_F(SessionFilesTest, AFileThatCannotBeSyncedIsNotPut) {
  staging.fail_next_sync();
  EXPECT_EQ(session::code_of([&] { put("a/new", "bytes"); }), Errc::input_output);
  EXPECT_FALSE(try_at("a/new"));
  put("a/new", "bytes");
  lose_power();
  EXPECT_EQ(read(node("a/new")), "bytes");
}

TEST_F(SessionFilesTest, WhatWasDeletedIsGoneAfterAPowerLoss) {
  remove("a/one");
  lose_power();
  EXPECT_FALSE(try_at("a/one"));
}

TEST_F(SessionFilesTest, ADeletionThatCannotBeSyncedIsNotSaidToBeDone) {
  journal.fail_with(Error(Errc::no_space, "the disk is full"));
  for (int attempt = 0; attempt < 2; ++attempt)
    EXPECT_EQ(session::code_of([&] { remove("a/one"); }), Errc::no_space);
  journal.fail_with(std::nullopt);
  EXPECT_EQ(session::code_of([&] { remove("a/one"); }), Errc::not_found);
  lose_power();
  EXPECT_FALSE(try_at("a/one"));
}

// Programs that have the session mounted would run what is written there.
TEST_F(SessionFilesTest, NothingIsWrittenOrDeletedUnderANameOfGit) {
  const session::NodeId git = overlay->make_node(session::kRootNode, ".git", S_IFDIR | 0755, 0, {}).node;
  overlay->make_node(git, "config", S_IFREG | 0644, 0, {});
  for (const char* path : {".git", ".git/config", "a/.GIT/config", "git~1/x", "a/deep/.git"}) {
    EXPECT_EQ(session::code_of([&] { put(path, "bytes"); }), Errc::access_denied) << path;
    EXPECT_EQ(session::code_of([&] { remove(path); }), Errc::access_denied) << path;
  }
  EXPECT_TRUE(try_at(".git/config"));
  EXPECT_FALSE(try_at("a/.GIT"));
  put(".gitignore", "*.o");
}

}  // namespace
}  // namespace escrow::daemon
