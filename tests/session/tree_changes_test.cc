#include "session/trees/tree_changes.h"

#include <gtest/gtest.h>

#include "session/base/error.h"
#include "session/trees/different_trees.h"
#include "session/trees/read_set.h"
#include "session/trees/reconcile.h"
#include "session/trees/tree_walk.h"
#include "tests/session/fake_services.h"

namespace escrow::session {
namespace {

using support::Files;

class TreeChanges : public testing::Test {
 protected:
  std::string changes(const TreeRoot& before, const TreeRoot& after) {
    std::string text;
    for (const PathChange& change : tree_changes(objects_, before, after))
      text += std::string(name_of(change.did)) + " " + change.path + "; ";
    return text;
  }
  RepoPath path(const std::string& text) { return RepoPath::parse(text, "path"); }

  support::FakeObjectStore objects_;
  support::FakeQuarantine quarantine_{objects_};
};

TEST_F(TreeChanges, ListsDeletionsFirstThenByPath) {
  EXPECT_EQ(changes(objects_.put_files({{"a", "1"}, {"m", "1"}, {"z/x", "1"}, {"z/y", "1"}}),
                    objects_.put_files({{"b", "2"}, {"m", "2"}, {"z/x", "1"}, {"a.d", "2"}})),
            "deleted a; deleted z/y; added a.d; added b; modified m; ");
}

TEST_F(TreeChanges, AFileThatBecameADirectoryIsADeletionAndAdditions) {
  EXPECT_EQ(changes(objects_.put_files({{"a", "1"}}), objects_.put_files({{"a/x", "1"}, {"a/y", "1"}})),
            "deleted a; added a/x; added a/y; ");
}

TEST_F(TreeChanges, AFileThatBecameASymlinkChangedItsType) {
  const ObjectId blob = objects_.put_blob("1");
  EXPECT_EQ(changes(objects_.put_tree({{"a", GitMode::regular, blob}, {"b", GitMode::regular, blob}}),
                    objects_.put_tree({{"a", GitMode::symlink, blob}, {"b", GitMode::executable, blob}})),
            "type changed a; modified b; ");
}

TEST_F(TreeChanges, NothingAndEverythingAreTrees) {
  const ObjectId tree = objects_.put_files({{"d/x", "1"}, {"y", "1"}});
  EXPECT_EQ(changes(std::nullopt, tree), "added d/x; added y; ");
  EXPECT_EQ(changes(tree, std::nullopt), "deleted d/x; deleted y; ");
  const ChangeCounts counts = count_changes(tree_changes(objects_, std::nullopt, tree));
  EXPECT_EQ(counts.added, 2u);
  EXPECT_EQ(counts.modified + counts.deleted, 0u);
}

TEST_F(TreeChanges, EqualSubTreesAreNotRead) {
  Files before;
  for (int i = 0; i < 50; ++i) before["d" + std::to_string(i) + "/f"] = "1";
  Files after = before;
  after["d7/f"] = "2";
  const ObjectId a = objects_.put_files(before), b = objects_.put_files(after);
  const auto reads = objects_.reads().trees;
  EXPECT_EQ(changes(a, b), "modified d7/f; ");
  EXPECT_EQ(objects_.reads().trees - reads, 4u);
}

TEST_F(TreeChanges, NestingWithoutEndIsRefusedBeforeTheStackEnds) {
  ObjectId deep = objects_.put_files({{"f", "1"}});
  for (int i = 0; i < kMaxTreeDepth + 10; ++i) deep = objects_.put_tree({{"d", GitMode::tree, deep}});
  try {
    changes(std::nullopt, deep);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::name_too_long);
  }
}

// Each directory has the next one under ten names: 10^levels paths, of which the tree at the bottom is the last part.
class TreeBombs : public TreeChanges {
 protected:
  ObjectId bomb(const Tree& bottom, int levels = 30, const std::string& prefix = "") {
    ObjectId tree = objects_.put_tree(bottom);
    for (int level = 0; level < levels; ++level) {
      Tree above;
      for (int i = 0; i < 10; ++i) above.push_back({prefix + std::to_string(i), GitMode::tree, tree});
      tree = objects_.put_tree(above);
    }
    return tree;
  }
  ObjectId bomb_of(const std::string& content, int levels = 30, const std::string& prefix = "") {
    return bomb({{"f", GitMode::regular, objects_.put_blob(content)}}, levels, prefix);
  }
  std::uint64_t trees_read() const { return objects_.reads().trees; }
};

TEST_F(TreeBombs, AreRefusedByTheListOfChangesOnceItBecomesLong) {
  const ObjectId one = bomb_of("1"), two = bomb_of("2");
  const std::vector<std::pair<TreeRoot, TreeRoot>> pairs{{one, two}, {std::nullopt, two}, {one, std::nullopt}};
  for (const auto& [before, after] : pairs) {
    const std::uint64_t read = trees_read();
    try {
      tree_changes(objects_, before, after);
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::result_too_large);
      EXPECT_NE(std::string(error.what()).find("at most 6000000 paths"), std::string::npos) << error.what();
    }
    EXPECT_LT(trees_read() - read, 25'000u);
  }
}

TEST_F(TreeBombs, AreCountedByReadingEachPairOnce) {
  const ObjectId one = bomb_of("1"), two = bomb_of("2");
  const std::uint64_t read = trees_read();
  EXPECT_EQ(count_changes(objects_, one, two), (ChangeCounts{0, kMostCounted, 0}));
  EXPECT_EQ(trees_read() - read, 2u * 31);
  EXPECT_EQ(count_changes(objects_, bomb_of("1", 3), bomb_of("2", 3)), (ChangeCounts{0, 1000, 0}));
}

TEST_F(TreeBombs, ThatLongNamesMakeAreRefusedForTheirBytes) {
  const std::string name(2'000, 'n');
  EXPECT_EQ(tree_changes(objects_, std::nullopt, bomb_of("1", 3, name)).size(), 1'000u);
  EXPECT_THROW(tree_changes(objects_, std::nullopt, bomb_of("1", 6, name)), Error);
}

TEST_F(TreeBombs, OfManyFilesBelowTheBoundAreListedWhole) {
  EXPECT_EQ(tree_changes(objects_, bomb_of("1", 5), bomb_of("2", 5)).size(), 100'000u);
}

// Also where nothing is found on any of the paths: in empty directories, and in names that no session shows.
TEST_F(TreeBombs, AreNotWalkedByPathForTheFirstPathsThatDiffer) {
  const ObjectId blob = objects_.put_blob("1");
  const ObjectId empty = bomb({});
  const ObjectId hidden = bomb({{".git", GitMode::regular, blob}});
  const ObjectId hidden_too = bomb({{".git", GitMode::regular, objects_.put_blob("2")}});
  for (const auto& [before, after] : {std::pair<TreeRoot, TreeRoot>{std::nullopt, empty}, {hidden, hidden_too}}) {
    std::vector<std::string> paths;
    const std::uint64_t read = trees_read();
    EXPECT_TRUE(first_changed_paths(objects_, before, after, 100, paths));
    EXPECT_EQ(paths.size(), 0u);
    EXPECT_LE(trees_read() - read, 2u * 31);
  }
  std::vector<std::string> paths;
  EXPECT_FALSE(first_changed_paths(objects_, bomb_of("1"), bomb_of("2"), 100, paths));
  EXPECT_EQ(paths.size(), 100u);
}

TEST_F(TreeBombs, AreMergedOnceForEachThreeTrees) {
  const auto with = [&](const std::string& one, const std::string& two) {
    return bomb({{"a", GitMode::regular, objects_.put_blob(one)}, {"b", GitMode::regular, objects_.put_blob(two)}});
  };
  const ObjectId base = with("1", "1"), ours = with("2", "1"), theirs = with("1", "2"), both = with("2", "2");
  const std::uint64_t read = trees_read();
  const auto merged = reconcile(quarantine_, base, ours, theirs);
  ASSERT_TRUE(std::holds_alternative<TreeRoot>(merged));
  EXPECT_EQ(std::get<TreeRoot>(merged), both);
  EXPECT_LE(trees_read() - read, 3u * 31);
}

TEST_F(TreeBombs, WithConflictsAreRefusedOnceTheListBecomesLong) {
  const std::string name(250, 'n');
  const ObjectId base = bomb_of("1", 30, name), ours = bomb_of("2", 30, name), theirs = bomb_of("3", 30, name);
  for (const bool keeps : {false, true}) {
    try {
      keeps ? (void)merge_keeping_ours(quarantine_, base, ours, theirs)
            : (void)reconcile(quarantine_, base, ours, theirs);
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::result_too_large);
    }
  }
}

TEST_F(TreeBombs, AreNotWalkedByPathForWhatASerializableSessionHasRead) {
  ReadSet everything;
  everything.take_all_below(ReadSet::kRoot);
  const ObjectId hidden = bomb({{".git", GitMode::regular, objects_.put_blob("1")}});
  const ObjectId hidden_too = bomb({{".git", GitMode::regular, objects_.put_blob("2")}});
  const std::uint64_t read = trees_read();
  EXPECT_TRUE(changed_reads(objects_, everything, path(""), hidden, hidden_too).empty());
  EXPECT_LE(trees_read() - read, 2u * 31 + 2);
  EXPECT_EQ(changed_reads(objects_, everything, path(""), bomb_of("1"), bomb_of("2")).size(), kMostReadConflicts);
}

using GraftTree = TreeChanges;

TEST_F(GraftTree, ReplacesOneDirectoryAndKeepsTheRest) {
  const ObjectId base = objects_.put_files({{"a/b/x", "1"}, {"a/y", "1"}, {"z", "1"}});
  const TreeRoot grafted = graft_tree(quarantine_, base, path("a/b"), objects_.put_files({{"n", "2"}}));
  EXPECT_EQ(support::files_of(quarantine_, grafted), (Files{{"a/b/n", "2"}, {"a/y", "1"}, {"z", "1"}}));
}

TEST_F(GraftTree, MakesMissingParents) {
  const TreeRoot grafted = graft_tree(quarantine_, objects_.put_files({{"z", "1"}}), path("p/q"),
                                      objects_.put_files({{"n", "2"}}));
  EXPECT_EQ(support::files_of(quarantine_, grafted), (Files{{"p/q/n", "2"}, {"z", "1"}}));
  EXPECT_EQ(support::files_of(quarantine_, graft_tree(quarantine_, std::nullopt, path("p/q"),
                                                      objects_.put_files({{"n", "2"}}))),
            (Files{{"p/q/n", "2"}}));
}

TEST_F(GraftTree, AnEmptiedPrefixDisappearsWithItsEmptyParents) {
  const ObjectId base = objects_.put_files({{"a/b/x", "1"}, {"z", "1"}});
  EXPECT_EQ(graft_tree(quarantine_, base, path("a/b"), std::nullopt), objects_.put_files({{"z", "1"}}));
  EXPECT_EQ(graft_tree(quarantine_, objects_.put_files({{"a/b/x", "1"}}), path("a/b"), std::nullopt), std::nullopt);
}

TEST_F(GraftTree, AnUnchangedDirectoryGivesTheSameTree) {
  const ObjectId base = objects_.put_files({{"a/b/x", "1"}, {"z", "1"}});
  EXPECT_EQ(graft_tree(quarantine_, base, path("a/b"), objects_.put_files({{"x", "1"}})), base);
  EXPECT_EQ(graft_tree(quarantine_, base, path("missing/too"), std::nullopt), base);
  EXPECT_EQ(quarantine_.object_count(), 0u);
}

TEST_F(GraftTree, ReadsOnlyTheTreesAlongThePrefix) {
  Files files{{"a/b/x", "1"}};
  for (int i = 0; i < 50; ++i) files["a/d" + std::to_string(i) + "/f"] = "1";
  const ObjectId base = objects_.put_files(files), subtree = objects_.put_files({{"n", "1"}});
  const auto reads = objects_.reads().trees;
  graft_tree(quarantine_, base, path("a/b"), subtree);
  EXPECT_LE(objects_.reads().trees - reads, 3u);  // the root, a, and the new tree
}

TEST_F(GraftTree, NameThatGitRefusesIsNeverWritten) {
  const ObjectId subtree = objects_.put_files({{"config", "1"}});
  for (const char* refused : {".git", "a/.GIT/b", "git~1", ".gitattributes"}) {
    try {
      graft_tree(quarantine_, objects_.put_files({{"z", "1"}}), path(refused), subtree);
      ADD_FAILURE() << refused << " was written";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::bad_request);
    }
  }
}

TEST_F(GraftTree, AFileInTheWayIsRefusedByName) {
  try {
    graft_tree(quarantine_, objects_.put_files({{"a/f", "1"}}), path("a/f/x"), objects_.put_files({{"n", "1"}}));
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::not_a_directory);
    EXPECT_NE(std::string(error.what()).find("'a/f'"), std::string::npos) << error.what();
  }
}

TEST_F(GraftTree, EntryAtFindsFilesDirectoriesAndNothing) {
  const ObjectId base = objects_.put_files({{"a/b/x", "1"}});
  EXPECT_EQ(entry_at(objects_, base, path("a/b"))->mode, GitMode::tree);
  EXPECT_EQ(entry_at(objects_, base, path("a/b/x"))->mode, GitMode::regular);
  EXPECT_EQ(entry_at(objects_, base, path(""))->id, base);
  EXPECT_FALSE(entry_at(objects_, base, path("a/b/x/y")));
  EXPECT_FALSE(entry_at(objects_, base, path("a/c")));
  EXPECT_FALSE(entry_at(objects_, std::nullopt, path("")));
}

TEST_F(GraftTree, DirectoriesSortAsIfTheirNamesEndedInASlash) {
  const ObjectId id = objects_.put_blob("1");
  const TreeEntry file{"a.b", GitMode::regular, id}, plain{"a", GitMode::regular, id};
  const TreeEntry directory{"a", GitMode::tree, id};
  EXPECT_TRUE(tree_order_less(file, directory));
  EXPECT_TRUE(tree_order_less(plain, file));
  EXPECT_FALSE(tree_order_less(directory, directory));
  EXPECT_TRUE(tree_order_less({"a\x7f", GitMode::regular, id}, {"a\xff", GitMode::regular, id}));
}

}  // namespace
}  // namespace escrow::session
