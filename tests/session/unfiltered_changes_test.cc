#include "session/trees/unfiltered_changes.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/session/fake_services.h"

namespace escrow::session {
namespace {

using support::Files;

class UnfilteredChanges : public testing::Test {
 protected:
  std::string named(const Files& before, const Files& after, const std::string& info = "") {
    std::string text;
    for (const UnfilteredChange& one :
         unfiltered_changes(objects_, objects_.put_files(before), objects_.put_files(after), info))
      text += one.path + " " + one.attribute + "; ";
    return text;
  }

  support::FakeObjectStore objects_;
};

TEST_F(UnfilteredChanges, AreNamedByTheAttributesOfTheTreeThatIsCommitted) {
  const std::string attributes = "*.key filter=crypt\n*.u working-tree-encoding=UTF-16\n*.both filter=x "
                                 "working-tree-encoding=UTF-16\n*.lfs filter=lfs\n*.8 working-tree-encoding=utf8\n"
                                 "*.odd filter\n*.no -filter\n[attr]secret filter=crypt\n*.macro secret\n";
  Files after = {{".gitattributes", attributes}};
  for (const char* name : {"a.key", "b.u", "c.both", "d.lfs", "e.8", "f.odd", "g.no", "h.macro", "i.none"})
    after[name] = after["d/" + std::string(name)] = std::string("of ") + name;
  after["empty.key"] = "";
  after["d.e/x.key"] = "between a directory and its files";
  after["d/.gitattributes"] = "*.key !filter\n*.none filter=deep\n";
  const std::string at_root = "a.key filter=crypt; b.u working-tree-encoding=UTF-16; c.both filter=x; ";
  EXPECT_EQ(named({{".gitattributes", "* filter=gone\n"}}, after),
            at_root + "d.e/x.key filter=crypt; d/b.u working-tree-encoding=UTF-16; d/c.both filter=x; "
                      "d/h.macro filter=crypt; d/i.none filter=deep; h.macro filter=crypt; ");
  EXPECT_EQ(named(after, after), "");
  EXPECT_EQ(named({}, {{"a/b", "1"}}, "/a/* filter=x\n"), "a/b filter=x; ");
}

TEST_F(UnfilteredChanges, WhatWasThereBeforeMayMoveAndGo) {
  const std::string attributes = "* filter=x\n";
  EXPECT_EQ(named({{".gitattributes", attributes}, {"a", "sealed"}, {"b", "1"}},
                  {{".gitattributes", attributes}, {"d/c", "sealed"}, {"b", "2"}}),
            "b filter=x; ");
  const ObjectId blob = objects_.put_blob("sealed"), file = objects_.put_blob(attributes);
  const auto tree = [&](GitMode mode) {
    return objects_.put_tree({{".gitattributes", GitMode::regular, file}, {"a", mode, blob}});
  };
  EXPECT_TRUE(unfiltered_changes(objects_, tree(GitMode::regular), tree(GitMode::executable), "").empty());
  EXPECT_TRUE(unfiltered_changes(objects_, std::nullopt, tree(GitMode::symlink), "").size() == 1) << "the attributes";
  EXPECT_EQ(unfiltered_changes(objects_, std::nullopt, tree(GitMode::group_writable), "").size(), 2u);
}

// A directory that has not changed is not read, however many files it has.
TEST_F(UnfilteredChanges, CostWhatHasChanged) {
  Files before = {{".gitattributes", "*.key filter=x\n"}, {"a/f", "1"}};
  for (int i = 0; i < 50; ++i) before["d" + std::to_string(i) + "/f.key"] = std::to_string(i);
  Files after = before;
  after["a/f"] = "2";
  const ObjectId one = objects_.put_files(before), other = objects_.put_files(after);
  const auto reads = objects_.reads().trees;
  EXPECT_TRUE(unfiltered_changes(objects_, one, other, "").empty());
  EXPECT_LE(objects_.reads().trees - reads, 6u);
}

}  // namespace
}  // namespace escrow::session
