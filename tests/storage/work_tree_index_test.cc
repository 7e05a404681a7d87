// The index that Escrow writes, read by git.
#include "storage/git/work_tree_index.h"

#include "tests/storage/git_test_repository.h"

namespace escrow::storage {
namespace {

using session::ObjectId;

const session::TimesBelow kTimes{{1700000000, 0}, std::nullopt};
constexpr session::Timestamp kWritten{1700000001, 0};

class WorkTreeIndex : public testing::Test {
 protected:
  // A command of git in the work tree, over the index in `index`.
  std::string git(const std::string& arguments) const {
    return run("cd " + tree_ + " && GIT_INDEX_FILE=" + index_ + " git --git-dir=" + repository_.path +
               " --work-tree=. -c core.checkStat=minimal -c core.trustctime=false " + arguments);
  }
  void write_index(const std::optional<ObjectId>& tree, const std::vector<std::string>& changed = {}) const {
    const WorkTree shown{.tree = tree, .times = kTimes, .changed = changed};
    std::ofstream(index_, std::ios::binary) << work_tree_index(*repository_.store, shown, kWritten).bytes;
  }
  // What `script` makes in an empty directory, as a tree of the repository; the directory stays.
  ObjectId make(const std::string& script) {
    run("mkdir " + tree_);
    run("cd " + tree_ + " && " + script);
    git("add -A");
    return ObjectId::from_hex(git("write-tree")).value();
  }

  GitTestRepository repository_;
  const std::string tree_ = repository_.scratch("tree");
  const std::string index_ = repository_.scratch("index");
};

constexpr const char* kOddTree =
    "mkdir -p a a-b a.b deep/er/and/deeper; echo 1 > a/x; echo 2 > a-b/x; echo 3 > a.b/x; echo 4 > a.c; echo 5 > a0; "
    "touch empty; ln -s a/x link; echo 6 > run; chmod +x run; head -c 300000 /dev/urandom > large; "
    "printf 7 > \"$(printf 'odd\\nname')\"; printf 8 > deep/er/and/deeper/f; "
    "p=$(printf '%0200d' 1); mkdir -p $p/$p/$p; echo 9 > $p/$p/$p/f; "
    "find . -exec touch -h -d @1700000000 {} +";

TEST_F(WorkTreeIndex, HasWhatGitsOwnIndexOfTheTreeHas) {
  const ObjectId tree = make(kOddTree);
  git("read-tree " + tree.hex());
  const std::string expected = git("ls-files --stage");
  write_index(tree);
  EXPECT_EQ(git("ls-files --stage"), expected);
  EXPECT_EQ(git("write-tree"), tree.hex());
}

TEST_F(WorkTreeIndex, SaysOfEveryFileThatItIsUnchanged) {
  write_index(make(kOddTree));
  // Without a refresh: a file whose size or time differs from the index would be named.
  EXPECT_EQ(git("diff-files --name-only"), "");
  run("touch " + tree_ + "/run");
  EXPECT_EQ(git("diff-files --name-only"), "run");
}

TEST_F(WorkTreeIndex, WhatWasChangedAlreadyIsReadWhateverItsTime) {
  const ObjectId tree = make(kOddTree);
  run("cd " + tree_ + " && for f in a/x a-b/x run; do echo n > $f; touch -d @1700000000 $f; done");
  write_index(tree);
  EXPECT_EQ(git("diff --name-only"), "") << "git knows a change by size and second";
  write_index(tree, {"a", "a-b/x", "a/x", "a0", "run"});
  EXPECT_EQ(git("diff --name-only"), "a-b/x\na/x\nrun");
}

TEST_F(WorkTreeIndex, ItsCacheOfTreesHoldsWhenSomethingIsAdded) {
  const ObjectId tree = make(kOddTree);
  const std::string add = "update-index --add --cacheinfo 100644," + git("hash-object -w a0") + ",deep/er/new";
  git("read-tree " + tree.hex());
  git(add);
  const std::string expected = git("write-tree");
  write_index(tree);
  git(add);
  EXPECT_EQ(git("write-tree"), expected);
  EXPECT_EQ(git("diff-index --cached --name-only " + tree.hex()), "deep/er/new");
}

TEST_F(WorkTreeIndex, LeavesOutWhatGitRefusesAndKeepsSubmodules) {
  const ObjectId plain = make("mkdir d; echo 1 > d/f");
  const std::string blob = git("rev-parse " + plain.hex() + ":d/f"), link = std::string(40, '1');
  const std::string inner = run("printf '100644 blob " + blob + "\\t.git\\n100664 blob " + blob + "\\tg\\n' | git -C " +
                                repository_.path + " mktree");
  const std::string outer = run("printf '040000 tree " + inner + "\\td\\n160000 commit " + link +
                                "\\tsub\\n' | git -C " + repository_.path + " mktree --missing");
  write_index(ObjectId::from_hex(outer).value());
  EXPECT_EQ(git("ls-files --stage"), "100644 " + blob + " 0\td/g\n160000 " + link + " 0\tsub");
  EXPECT_NE(git("write-tree --missing-ok"), outer) << "a tree without .git is another one";
}

TEST_F(WorkTreeIndex, OfNothingIsEmpty) {
  run("mkdir " + tree_);
  write_index(std::nullopt);
  EXPECT_EQ(git("ls-files --stage"), "");
}

}  // namespace
}  // namespace escrow::storage
