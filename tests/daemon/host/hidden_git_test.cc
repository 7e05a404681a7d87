// A session's files as a mount shows them that hides what others made under the names that git takes for .git.
#include "daemon/host/hidden_git.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "daemon/host/session_hands.h"
#include "tests/session/overlay_fixture.h"
#include "tests/support/temporary_directory.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::kRootNode;
using session::NodeId;
using session::RenameMode;

using Names = std::vector<std::string>;

class HiddenGitTest : public session::OverlayTest {
 protected:
  // By the one before.
  NodeId make(NodeId directory, std::string_view name, std::uint32_t type = S_IFDIR) {
    return overlay->make_node(directory, name, type | 0755u, 0, {}).node;
  }
  HiddenGit& mounted(const Names& shown = {}) {
    mount = std::make_unique<HiddenGit>(*overlay, shown);
    return *mount;
  }
  bool is_shown(NodeId directory, std::string_view name) const {
    const bool found = mount->lookup(directory, name).has_value();
    EXPECT_EQ(mount->own_lookup(directory, name).has_value(), found);
    bool is_listed = false;
    mount->list(directory, 0, [&](const session::FileSystem::Entry& entry) {
      is_listed = is_listed || entry.name == name;
      return true;
    });
    EXPECT_EQ(is_listed, found) << name;
    return found;
  }

  std::unique_ptr<HiddenGit> mount;
};

TEST_F(HiddenGitTest, WhatWasThereUnderANameOfGitIsNotShown) {
  make(kRootNode, ".git");
  make(node("a"), ".git", S_IFREG);
  overlay->make_symlink(node("a/deep"), ".git", "/etc", {});
  for (const char* name : {".GIT", "git~1", ".git ", ".g\u200cit"}) make(kRootNode, name);
  make(kRootNode, ".gitignore", S_IFREG);
  make(kRootNode, "git");
  mounted();
  for (const char* name : {".git", ".GIT", "git~1", ".git ", ".g\u200cit"}) EXPECT_FALSE(is_shown(kRootNode, name));
  EXPECT_FALSE(is_shown(node("a"), ".git"));
  EXPECT_FALSE(is_shown(node("a/deep"), ".git"));
  for (const char* name : {".gitignore", "git", "a", "b.txt"}) EXPECT_TRUE(is_shown(kRootNode, name)) << name;
  EXPECT_EQ(git_made_in(*overlay).size(), 7u);
}

TEST_F(HiddenGitTest, ADirectoryThatIsMovedTakesItsHiddenOneAlong) {
  make(node("a"), ".git");
  HiddenGit& files = mounted();
  files.rename(kRootNode, "a", kRootNode, "moved", RenameMode::replace);
  EXPECT_FALSE(is_shown(node("moved"), ".git"));
}

TEST_F(HiddenGitTest, AHiddenOneCannotBeMovedRemovedOrReplaced) {
  make(make(kRootNode, ".git"), "config", S_IFREG);
  make(node("a"), ".git", S_IFREG);
  HiddenGit& files = mounted();
  const NodeId own = files.make_node(kRootNode, "own", S_IFDIR | 0755, 0, {}).node;
  const auto code = [](auto call) { return session::code_of(call); };
  EXPECT_EQ(code([&] { files.rename(kRootNode, ".git", kRootNode, "x", RenameMode::replace); }), Errc::not_found);
  EXPECT_EQ(code([&] { files.rename(kRootNode, "own", kRootNode, ".git", RenameMode::exchange); }), Errc::not_found);
  EXPECT_EQ(code([&] { files.rename(kRootNode, "own", kRootNode, ".git", RenameMode::replace); }), Errc::not_empty);
  EXPECT_EQ(code([&] { files.make_node(kRootNode, ".git", S_IFDIR | 0755, 0, {}); }), Errc::exists);
  EXPECT_EQ(code([&] { files.remove_directory(kRootNode, ".git"); }), Errc::not_found);
  EXPECT_EQ(code([&] { files.unlink(node("a"), ".git"); }), Errc::not_found);
  EXPECT_FALSE(is_shown(kRootNode, ".git"));
  EXPECT_EQ(node("own"), own);
}

TEST_F(HiddenGitTest, WhatTheMountItselfNamesIsShown) {
  HiddenGit& files = mounted();
  files.make_node(kRootNode, ".git", S_IFDIR | 0755, 0, {});
  files.make_symlink(node("a"), ".git", "../.git", {});
  files.link(node("b.txt"), node("a/deep"), ".git");
  EXPECT_TRUE(is_shown(kRootNode, ".git"));
  EXPECT_TRUE(is_shown(node("a"), ".git"));
  EXPECT_TRUE(is_shown(node("a/deep"), ".git"));
  files.unlink(node("a"), ".git");
  files.rename(kRootNode, "b.txt", node("a"), ".git", RenameMode::replace);
  EXPECT_TRUE(is_shown(node("a"), ".git"));
  make(kRootNode, "old");
  files.rename(kRootNode, "old", kRootNode, ".git", RenameMode::exchange);
  EXPECT_TRUE(is_shown(kRootNode, ".git"));
}

// Whoever may go back to a savepoint can bring one back that was not there when the session was mounted.
TEST_F(HiddenGitTest, OneThatASavepointBringsBackIsNotShown) {
  make(kRootNode, ".git");
  overlay->remove_directory(kRootNode, ".git");
  mounted();
  make(kRootNode, ".git");
  EXPECT_FALSE(is_shown(kRootNode, ".git"));
}

TEST_F(HiddenGitTest, OneThatIsAskedForByNameIsShownAndNoOther) {
  make(kRootNode, ".git");
  make(node("a"), ".git");
  mounted({"a/.git"});
  EXPECT_FALSE(is_shown(kRootNode, ".git"));
  EXPECT_TRUE(is_shown(node("a"), ".git"));
  EXPECT_EQ(session::code_of([&] { mounted({"a/deep/.git"}); }), Errc::not_found);
  EXPECT_EQ(session::code_of([&] { mounted({"a/one"}); }), Errc::bad_request);
}

TEST_F(HiddenGitTest, OneSentenceNamesThemAndWhoHadTheSession) {
  EXPECT_EQ(describe_hidden_git("3f9c", {}, {"bob"}), "");
  const Names paths = {".git", "1/.git", "2/.git", "3/.git", "4/.git", "5/.git", "6/.git"};
  const std::string words = describe_hidden_git("3f9c", paths, {"bob", "a confined command of bob"});
  const std::string begin = "hidden: .git, 1/.git, 2/.git, 3/.git, 4/.git and 2 more of session 3f9c, which was served "
                            "to bob, a confined command of bob before";
  EXPECT_TRUE(words.starts_with(begin)) << words;
}

TEST(SessionHands, WhomEscrowdMountedItForIsKnownOnlyIfNobodyElseHadIt) {
  const support::TemporaryDirectory directory;
  const std::string& path = directory.path();
  const std::string api = hand_over_api("user:x"), command = hand_of_command("user:y");
  EXPECT_EQ(note_hand(path, api, true), Names());
  EXPECT_EQ(note_hand(path, "", true), Names());
  EXPECT_EQ(note_hand(path, command, false), Names{api});
  EXPECT_EQ(note_hand(path, "", true), (Names{api, command, kUnknownHand}));
  EXPECT_EQ(note_hand(path, "", true), (Names{api, command, kUnknownHand}));
  EXPECT_EQ(note_hand(path, command, true), (Names{api, kUnknownHand}));
  // It was killed before it had noted whom it serves.
  for (const std::string& before : {std::string(), command + "\n", std::string(kUnknownHand) + "\n"}) {
    std::ofstream(path + "/hands", std::ios::trunc) << before;
    EXPECT_EQ(has_hands(path), !before.empty());
    EXPECT_FALSE(note_hand(path, "", true).empty()) << before;
  }
}

}  // namespace
}  // namespace escrow::daemon
