// Every row of the commit table (design, section 5), written by hand.
#include "session/trees/reconcile.h"

#include <gtest/gtest.h>

#include "session/trees/tree_walk.h"
#include "tests/session/fake_services.h"

namespace escrow::session {
namespace {

using support::Files;

class Reconcile : public testing::Test {
 protected:
  TreeRoot tree(const Files& files) { return files.empty() ? TreeRoot() : TreeRoot(objects_.put_files(files)); }

  std::string merge(const Files& base, const Files& ours, const Files& theirs) {
    return merge_trees(tree(base), tree(ours), tree(theirs));
  }
  std::string merge_trees(const TreeRoot& base, const TreeRoot& ours, const TreeRoot& theirs) {
    const auto outcome = reconcile(quarantine_, base, ours, theirs);
    std::string text;
    if (const auto* conflicts = std::get_if<Conflicts>(&outcome)) {
      for (const Conflict& one : conflicts->paths)
        text += "conflict " + one.path + ": " + name_of(one.ours) + "/" + name_of(one.theirs) + "; ";
    } else {
      for (const auto& [path, content] : support::files_of(quarantine_, std::get<TreeRoot>(outcome)))
        text += path + "=" + content + "; ";
    }
    return text;
  }
  TreeRoot with_entry(const std::string& name, GitMode mode, const std::string& content) {
    return objects_.put_tree({{name, mode, objects_.put_blob(content)}});
  }

  support::FakeObjectStore objects_;
  support::FakeQuarantine quarantine_{objects_};
};

TEST_F(Reconcile, UnchangedByTheSessionGivesTheHead) {
  EXPECT_EQ(merge({{"a", "1"}, {"b", "1"}}, {{"a", "1"}, {"b", "2"}}, {{"a", "9"}, {"b", "1"}}), "a=9; b=2; ");
  EXPECT_EQ(merge({{"a", "1"}, {"b", "1"}}, {{"a", "1"}, {"b", "2"}}, {{"b", "1"}}), "b=2; ");
  EXPECT_EQ(merge({{"b", "1"}}, {{"b", "2"}}, {{"b", "1"}, {"new", "9"}}), "b=2; new=9; ");
}

TEST_F(Reconcile, UnchangedByOthersGivesTheSession) {
  EXPECT_EQ(merge({{"a", "1"}, {"o", "1"}}, {{"a", "2"}, {"o", "1"}}, {{"a", "1"}, {"o", "9"}}), "a=2; o=9; ");
  EXPECT_EQ(merge({{"a", "1"}, {"o", "1"}}, {{"o", "1"}}, {{"a", "1"}, {"o", "9"}}), "o=9; ");
  EXPECT_EQ(merge({{"o", "1"}}, {{"a", "2"}, {"o", "1"}}, {{"o", "9"}}), "a=2; o=9; ");
}

TEST_F(Reconcile, ChangedToTheSameEntryIsThatEntry) {
  EXPECT_EQ(merge({{"a", "1"}}, {{"a", "2"}, {"x", "s"}}, {{"a", "2"}, {"y", "h"}}), "a=2; x=s; y=h; ");
  EXPECT_EQ(merge({}, {{"a", "2"}, {"x", "s"}}, {{"a", "2"}}), "a=2; x=s; ");
}

TEST_F(Reconcile, DeletedByBothIsGone) {
  EXPECT_EQ(merge({{"a", "1"}, {"b", "1"}}, {{"b", "2"}}, {{"b", "1"}}), "b=2; ");
  EXPECT_EQ(merge({{"a", "1"}}, {}, {}), "");
}

TEST_F(Reconcile, ChangedDifferentlyConflicts) {
  EXPECT_EQ(merge({{"a", "1"}}, {{"a", "2"}}, {{"a", "3"}}), "conflict a: modified/modified; ");
  EXPECT_EQ(merge({}, {{"a", "2"}}, {{"a", "3"}}), "conflict a: added/added; ");
}

TEST_F(Reconcile, ChangedByTheSessionAndDeletedByOthersConflicts) {
  EXPECT_EQ(merge({{"a", "1"}}, {{"a", "2"}}, {}), "conflict a: modified/deleted; ");
}

TEST_F(Reconcile, DeletedByTheSessionAndChangedByOthersConflicts) {
  EXPECT_EQ(merge({{"a", "1"}}, {}, {{"a", "2"}}), "conflict a: deleted/modified; ");
}

TEST_F(Reconcile, EveryConflictingPathIsNamedInOrder) {
  EXPECT_EQ(merge({{"d/x", "1"}, {"a", "1"}, {"c", "1"}}, {{"d/x", "2"}, {"a", "2"}, {"c", "1"}},
                  {{"d/x", "3"}, {"c", "3"}}),
            "conflict a: modified/deleted; conflict d/x: modified/modified; ");
}

TEST_F(Reconcile, AFileAgainstADirectoryIsNamedAfterAnEarlierConflictToo) {
  EXPECT_EQ(merge({{"a", "1"}, {"d/x", "1"}}, {{"a", "2"}, {"d", "file"}},
                  {{"a", "3"}, {"d/x", "1"}, {"d/y", "9"}}),
            "conflict a: modified/modified; conflict d: type changed/modified; ");
}

TEST_F(Reconcile, DeletedDirectoryKeepsWhatOthersAddedBelowIt) {
  EXPECT_EQ(merge({{"d/x", "1"}, {"d/y", "1"}, {"k", "1"}}, {{"k", "1"}},
                  {{"d/x", "1"}, {"d/y", "1"}, {"d/new", "9"}, {"k", "1"}}),
            "d/new=9; k=1; ");
}

TEST_F(Reconcile, DeletedDirectoryConflictsOnlyWhereOthersChangedAFile) {
  EXPECT_EQ(merge({{"d/x", "1"}, {"d/y", "1"}}, {{"k", "1"}}, {{"d/x", "9"}, {"d/y", "1"}}),
            "conflict d/x: deleted/modified; ");
}

TEST_F(Reconcile, AdditionBelowADirectoryThatOthersDeletedStays) {
  EXPECT_EQ(merge({{"d/x", "1"}, {"k", "1"}}, {{"d/new", "2"}, {"d/x", "1"}, {"k", "1"}}, {{"k", "1"}}),
            "d/new=2; k=1; ");
}

TEST_F(Reconcile, FileAgainstDirectoryConflicts) {
  EXPECT_EQ(merge({}, {{"a", "file"}}, {{"a/x", "dir"}}), "conflict a: added/added; ");
  EXPECT_EQ(merge({}, {{"a/x", "dir"}}, {{"a", "file"}}), "conflict a: added/added; ");
  EXPECT_EQ(merge({{"a", "1"}}, {{"a", "2"}}, {{"a/x", "dir"}}), "conflict a: modified/type changed; ");
  EXPECT_EQ(merge({{"a/x", "1"}}, {{"a", "file"}}, {{"a/x", "1"}, {"a/y", "2"}}),
            "conflict a: type changed/modified; ");
}

TEST_F(Reconcile, FileThatBecameADirectoryIsCleanWhenTheOtherSideLeftItAlone) {
  EXPECT_EQ(merge({{"a", "1"}, {"o", "1"}}, {{"a/x", "2"}, {"o", "1"}}, {{"a", "1"}, {"o", "9"}}), "a/x=2; o=9; ");
  EXPECT_EQ(merge({{"a/x", "1"}, {"o", "1"}}, {{"a", "2"}, {"o", "1"}}, {{"a/x", "1"}, {"o", "9"}}), "a=2; o=9; ");
}

TEST_F(Reconcile, FileDeletedByOneSideAndTurnedIntoADirectoryByTheOtherIsTheDirectory) {
  EXPECT_EQ(merge({{"a", "1"}, {"o", "1"}}, {{"o", "2"}}, {{"a/x", "9"}, {"o", "1"}}), "a/x=9; o=2; ");
}

TEST_F(Reconcile, AnEmptiedDirectoryDisappears) {
  EXPECT_EQ(merge({{"d/x", "1"}, {"d/y", "1"}}, {{"d/x", "1"}}, {{"d/y", "1"}}), "");
}

TEST_F(Reconcile, ModesTypesAndContentsAreOneEntry) {
  const TreeRoot base = with_entry("a", GitMode::regular, "1");
  EXPECT_EQ(merge_trees(base, with_entry("a", GitMode::executable, "1"), with_entry("a", GitMode::regular, "2")),
            "conflict a: modified/modified; ");
  EXPECT_EQ(merge_trees(base, with_entry("a", GitMode::symlink, "1"), with_entry("a", GitMode::executable, "1")),
            "conflict a: type changed/modified; ");
  EXPECT_EQ(merge_trees(base, with_entry("a", GitMode::symlink, "t"), with_entry("a", GitMode::symlink, "t")),
            "a=t; ");
}

TEST_F(Reconcile, AnOldModeThatNobodyChangedIsKept) {
  const ObjectId blob = objects_.put_blob("1");
  const ObjectId more = objects_.put_blob("2");
  const TreeRoot base = objects_.put_tree({{"a", GitMode::group_writable, blob}});
  const TreeRoot ours = objects_.put_tree({{"a", GitMode::group_writable, blob}, {"b", GitMode::regular, more}});
  const TreeRoot theirs = objects_.put_tree({{"a", GitMode::group_writable, blob}, {"c", GitMode::regular, more}});
  const auto merged = std::get<TreeRoot>(reconcile(quarantine_, base, ours, theirs));
  ASSERT_TRUE(merged);
  EXPECT_EQ(quarantine_.read_tree(*merged).front().mode, GitMode::group_writable);
}

TEST_F(Reconcile, SubmodulesAreEntriesLikeFiles) {
  const auto at = [&](const std::string& commit) {
    return TreeRoot(objects_.put_tree({{"sub", GitMode::gitlink, objects_.put_blob(commit)}}));
  };
  const TreeRoot base = at("1"), ours = at("2"), theirs = at("3");
  EXPECT_EQ(merge_trees(base, ours, theirs), "conflict sub: modified/modified; ");
  EXPECT_EQ(std::get<TreeRoot>(reconcile(quarantine_, base, base, theirs)), theirs);
  EXPECT_EQ(std::get<TreeRoot>(reconcile(quarantine_, base, ours, base)), ours);
}

TEST_F(Reconcile, ReadsOnlyTheTreesThatDiffer) {
  Files base;
  for (int i = 0; i < 100; ++i) base["dir" + std::to_string(i) + "/sub/file"] = "1";
  Files ours = base, theirs = base;
  ours["dir1/sub/file"] = "2";
  theirs["dir2/sub/file"] = "3";
  const TreeRoot b = tree(base), s = tree(ours), h = tree(theirs);
  const auto before = objects_.reads().trees;
  ASSERT_TRUE(std::holds_alternative<TreeRoot>(reconcile(quarantine_, b, s, h)));
  EXPECT_LE(objects_.reads().trees - before, 3u);  // dir1 and dir2 are taken whole, each from its side
}

TEST_F(Reconcile, NothingIsWrittenWhenItConflicts) {
  EXPECT_EQ(merge({{"a", "1"}}, {{"a", "2"}, {"b", "s"}}, {{"a", "3"}, {"c", "h"}}),
            "conflict a: modified/modified; ");
  EXPECT_EQ(quarantine_.object_count(), 0u);
}

TEST_F(Reconcile, KeepingOursTakesTheCleanPathsAndNamesTheRest) {
  const auto merged = merge_keeping_ours(quarantine_, tree({{"a", "1"}, {"b", "1"}, {"d/x", "1"}}),
                                         tree({{"a", "2"}, {"b", "1"}}),
                                         tree({{"a", "3"}, {"b", "9"}, {"d/x", "9"}, {"d/y", "9"}, {"n", "9"}}));
  EXPECT_EQ(support::files_of(quarantine_, merged.tree), (Files{{"a", "2"}, {"b", "9"}, {"d/y", "9"}, {"n", "9"}}));
  ASSERT_EQ(merged.conflicts.size(), 2u);
  EXPECT_EQ(merged.conflicts[0].path, "a");
  EXPECT_EQ(merged.conflicts[1].path, "d/x");
}

TEST_F(Reconcile, KeepingOursKeepsTheSessionsDirectoryWhereOthersPutAFile) {
  const auto merged = merge_keeping_ours(quarantine_, tree({}), tree({{"a/x", "s"}}), tree({{"a", "h"}, {"b", "h"}}));
  EXPECT_EQ(support::files_of(quarantine_, merged.tree), (Files{{"a/x", "s"}, {"b", "h"}}));
  EXPECT_EQ(merged.conflicts.size(), 1u);
}

}  // namespace
}  // namespace escrow::session
