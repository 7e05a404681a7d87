// A session's files as a mount shows them that hides what others made under the names that git takes for .git.
#include "daemon/host/hidden_git.h"

#include <sys/stat.h>

#include "session/trees/git_file_rules.h"
#include "tests/session/overlay_fixture.h"

namespace escrow::daemon {
namespace {

using session::Errc;
using session::kRootNode;
using session::NodeId;
using session::RenameMode;

using Names = std::vector<std::string>;

class HiddenGitTest : public session::OverlayTest {
 protected:
  // By nobody that is known.
  NodeId make(NodeId directory, std::string_view name, std::uint32_t type = S_IFDIR) {
    return overlay->make_node(directory, name, type | 0755u, 0, {}).node;
  }
  HiddenGit& mounted(const GitViewer& given = {.hand = "bob"}) {
    mount = std::make_unique<HiddenGit>(*overlay, given);
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
  EXPECT_EQ(mount->hidden(*overlay, "", {}).size(), 7u);
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
  make(node("a/deep"), ".git");
  HiddenGit& files = mounted();
  const NodeId own = files.make_node(kRootNode, "own", S_IFDIR | 0755, 0, {}).node;
  const NodeId file = files.make_node(kRootNode, "file", S_IFREG | 0644, 0, {}).node;
  const auto code = [](auto call) { return session::code_of(call); };
  EXPECT_EQ(code([&] { files.rename(kRootNode, ".git", kRootNode, "x", RenameMode::replace); }), Errc::not_found);
  EXPECT_EQ(code([&] { files.rename(kRootNode, "own", kRootNode, ".git", RenameMode::exchange); }), Errc::not_found);
  for (const NodeId directory : {kRootNode, node("a"), node("a/deep")}) {
    for (const char* name : {"own", "file"})
      EXPECT_EQ(code([&] { files.rename(kRootNode, name, directory, ".git", RenameMode::replace); }), Errc::exists);
    EXPECT_EQ(code([&] { files.make_node(directory, ".git", S_IFDIR | 0755, 0, {}); }), Errc::exists);
    EXPECT_EQ(code([&] { files.link(file, directory, ".git"); }), Errc::exists);
    EXPECT_FALSE(is_shown(directory, ".git"));
  }
  EXPECT_EQ(code([&] { files.remove_directory(kRootNode, ".git"); }), Errc::not_found);
  EXPECT_EQ(code([&] { files.unlink(node("a"), ".git"); }), Errc::not_found);
  EXPECT_EQ(node("own"), own);
  EXPECT_EQ(node("file"), file);
}

// As on a disk, where the next file gets the inode of one that is gone.
TEST_F(HiddenGitTest, OneThatGetsTheNumberOfOneThatIsGoneIsHidden) {
  class OneNumber final : public session::ForwardingFileSystem {
   public:
    using ForwardingFileSystem::ForwardingFileSystem;
    std::optional<session::Attributes> lookup(NodeId directory, std::string_view name) override {
      return own_lookup(directory, name);
    }
    std::optional<session::Attributes> own_lookup(NodeId directory, std::string_view name) override {
      return ForwardingFileSystem::own_lookup(directory, name == ".GIT" ? ".git" : name);
    }
    void unlink(NodeId, std::string_view) override {}
    void remove_directory(NodeId, std::string_view) override {}
    void rename(NodeId, std::string_view, NodeId, std::string_view, RenameMode) override {}
    std::optional<std::string> xattr(NodeId, std::string_view) override { return "somebody else"; }
  };
  for (const std::uint32_t type : {S_IFDIR, S_IFREG}) {
    make(kRootNode, ".git", type);
    OneNumber files(*overlay);
    HiddenGit shown(files, {.hand = "bob", .shown = {".git"}});
    const auto is_there = [&] { return shown.lookup(kRootNode, ".GIT").has_value(); };
    EXPECT_TRUE(is_there());
    type == S_IFDIR ? shown.remove_directory(kRootNode, ".git") : shown.unlink(kRootNode, ".git");
    EXPECT_FALSE(is_there()) << type;
    HiddenGit moved(files, {.hand = "bob", .shown = {".git"}});
    moved.rename(kRootNode, "a", kRootNode, ".git", RenameMode::replace);
    EXPECT_FALSE(moved.lookup(kRootNode, ".GIT").has_value()) << type;
    type == S_IFDIR ? overlay->remove_directory(kRootNode, ".git") : overlay->unlink(kRootNode, ".git");
  }
}

TEST_F(HiddenGitTest, AMountShowsWhatItsOwnHandMadeWhoeverHadTheSessionSince) {
  HiddenGit& files = mounted();
  files.make_node(kRootNode, ".git", S_IFDIR | 0755, 0, {});
  files.make_symlink(node("a"), ".git", "../.git", {});
  write(node("b.txt"), "gitdir: ../../.git\n");
  files.link(node("b.txt"), node("a/deep"), ".git");
  const auto are_shown = [&](bool wanted) {
    for (const NodeId directory : {kRootNode, node("a"), node("a/deep")})
      EXPECT_EQ(is_shown(directory, ".git"), wanted) << directory.value;
    EXPECT_EQ(mount->hidden(*overlay, "", {}).size(), wanted ? 0u : 3u);
  };
  are_shown(true);
  mounted({.hand = "alice"});
  are_shown(false);
  mounted({});  // nobody knows whose it is
  are_shown(false);
  mounted();
  are_shown(true);
}

// Others can write where it leads, and it was shown that it leads there in the mount that made it alone.
TEST_F(HiddenGitTest, AFileOrLinkThatDoesNotLeadIntoAnotherIsShownInTheMountThatMadeItAlone) {
  const std::vector<std::pair<std::string, bool>> cases = {
      {"../.git", true},     {"/mnt/.git/worktrees/x", true},  {".GIT/modules/x", true},   {"../store", false},
      {"/srv/x.git", false}, {".git/modules/../../y", false},  {".git/..", false},         {"", false}};
  for (const auto& [target, is_shown_again] : cases) {
    const NodeId directory = make(kRootNode, "dir"), other = make(kRootNode, "other");
    mounted().make_node(directory, ".git", S_IFREG | 0644, 0, {});
    write(node("dir/.git"), "gitdir: " + target + "\n");
    if (!target.empty()) mount->make_symlink(other, ".git", target, {});
    EXPECT_TRUE(is_shown(directory, ".git")) << target;
    EXPECT_EQ(is_shown(other, ".git"), !target.empty()) << target;
    mounted();
    EXPECT_EQ(is_shown(directory, ".git"), is_shown_again) << target;
    EXPECT_EQ(is_shown(other, ".git"), is_shown_again) << target;
    if (!target.empty()) overlay->unlink(other, ".git");
    overlay->unlink(directory, ".git");
    overlay->remove_directory(kRootNode, "dir");
    overlay->remove_directory(kRootNode, "other");
  }
}

TEST_F(HiddenGitTest, WhatIsMovedToSuchANameIsItsMoversAlone) {
  HiddenGit& files = mounted();
  files.make_node(node("a"), ".git", S_IFREG | 0644, 0, {});
  files.rename(kRootNode, "b.txt", node("a"), ".git", RenameMode::replace);
  EXPECT_TRUE(is_shown(node("a"), ".git"));
  make(kRootNode, "old");
  files.make_node(kRootNode, ".git", S_IFDIR | 0755, 0, {});
  files.rename(kRootNode, "old", kRootNode, ".git", RenameMode::exchange);
  EXPECT_TRUE(is_shown(kRootNode, ".git"));
  mounted({.hand = "alice"}).rename(kRootNode, "old", kRootNode, ".GIT", RenameMode::replace);
  EXPECT_TRUE(is_shown(kRootNode, ".GIT"));
  mounted();
  EXPECT_FALSE(is_shown(kRootNode, ".GIT"));
  EXPECT_TRUE(is_shown(kRootNode, ".git"));
}

TEST_F(HiddenGitTest, AnUnknownHandSeesWhatIsMadeThroughItsMountAndNoLaterOneDoes) {
  for (int times = 0; times < 2; ++times) {
    HiddenGit& files = mounted({});
    EXPECT_FALSE(is_shown(kRootNode, ".git"));
    if (times == 0) files.make_node(kRootNode, ".git", S_IFDIR | 0755, 0, {});
    EXPECT_EQ(is_shown(kRootNode, ".git"), times == 0);
  }
}

// Whoever may go back to a savepoint can bring one back that was not there when the session was mounted.
TEST_F(HiddenGitTest, ASavepointBringsThemBackAsTheirMakersOwn) {
  mounted().make_node(kRootNode, ".git", S_IFDIR | 0755, 0, {});
  mounted({.hand = "alice"}).make_node(node("a"), ".git", S_IFDIR | 0755, 0, {});
  make(node("a/deep"), ".git");
  overlay->create_savepoint("all", "");
  overlay->remove_directory(kRootNode, ".git");
  overlay->remove_directory(node("a"), ".git");
  overlay->remove_directory(node("a/deep"), ".git");
  mounted();
  overlay->restore_savepoint("all");
  EXPECT_TRUE(is_shown(kRootNode, ".git"));
  EXPECT_FALSE(is_shown(node("a"), ".git"));
  EXPECT_FALSE(is_shown(node("a/deep"), ".git"));
}

TEST_F(HiddenGitTest, OneThatIsAskedForByNameIsShownInThatMountAlone) {
  make(kRootNode, ".git");
  make(node("a"), ".git");
  mounted({.hand = "bob", .shown = {"a/.git"}});
  EXPECT_FALSE(is_shown(kRootNode, ".git"));
  EXPECT_TRUE(is_shown(node("a"), ".git"));
  mounted({.hand = "bob"});
  EXPECT_FALSE(is_shown(node("a"), ".git"));
  EXPECT_EQ(session::code_of([&] { mounted({.hand = "bob", .shown = {"a/deep/.git"}}); }), Errc::not_found);
  EXPECT_EQ(session::code_of([&] { mounted({.hand = "bob", .shown = {"a/one"}}); }), Errc::bad_request);
}

TEST_F(HiddenGitTest, WhoMadeItIsNoAttributeThatACommitLeavesOut) {
  mounted().make_node(kRootNode, ".git", S_IFREG | 0644, 0, {});
  mount->rename(kRootNode, ".git", kRootNode, "plain", RenameMode::replace);
  EXPECT_TRUE(overlay->xattr(node("plain"), session::kGitMaker));
  EXPECT_TRUE(overlay->build_tree(quarantine, {}).omitted.empty());
}

TEST_F(HiddenGitTest, OneSentenceNamesThem) {
  EXPECT_EQ(describe_hidden_git("3f9c", {}, {}), "");
  const Names paths = {".git", "1/.git", "2/.git", "3/.git", "4/.git", "5/.git", "6/.git"};
  const std::string words = describe_hidden_git("3f9c", paths, {});
  EXPECT_TRUE(words.starts_with("hidden: .git, 1/.git, 2/.git, 3/.git, 4/.git and 2 more of session 3f9c, not made in "
                                "a mount of this user;"))
      << words;
  EXPECT_TRUE(describe_hidden_git("3f9c", {"1/.git"}, {"build"})
                  .starts_with("hidden: 1/.git, each .git in the cache 'build' of session 3f9c, not made"));
  EXPECT_EQ(describe_hidden_git("3f9c", {}, {"build"}).find("discard"), std::string::npos);
  EXPECT_NE(describe_hidden_git("3f9c", {}, {"build"}).find("`escrow cache drop NAME`"), std::string::npos);
  EXPECT_EQ(words.find("cache drop"), std::string::npos);
}

}  // namespace
}  // namespace escrow::daemon
