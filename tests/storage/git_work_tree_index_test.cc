// The index that Escrow writes, read by git.
#include "storage/git/work_tree_index.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "tests/storage/git_test_repository.h"

namespace escrow::storage {
namespace {

using session::ObjectId;

// Behind every time that a file of the test has, so that git believes what the index says.
constexpr session::Timestamp kWritten{4000000000, 0};

// The file system's own view of a work tree.
class Lstat {
 public:
  explicit Lstat(const std::string& root) : directories_{{session::kRootNode.value, root}} {}

  std::optional<session::Attributes> shown(session::NodeId directory, const std::string& name) {
    const std::string path = directories_.at(directory.value) + "/" + name;
    struct stat found;
    if (::lstat(path.c_str(), &found) != 0) return std::nullopt;
    session::Attributes attributes;
    attributes.node = session::NodeId{found.st_ino};
    attributes.uid = found.st_uid;
    attributes.gid = found.st_gid;
    attributes.size_bytes = static_cast<std::uint64_t>(found.st_size);
    attributes.modified = {found.st_mtim.tv_sec, static_cast<std::uint32_t>(found.st_mtim.tv_nsec)};
    attributes.changed = {found.st_ctim.tv_sec, static_cast<std::uint32_t>(found.st_ctim.tv_nsec)};
    directories_[found.st_ino] = path;
    return attributes;
  }

 private:
  std::map<std::uint64_t, std::string> directories_;
};

class WorkTreeIndex : public testing::Test {
 protected:
  // A command of git in the work tree, over the index in `index`.
  std::string git(const std::string& arguments) const {
    return run("cd " + tree_ + " && GIT_INDEX_FILE=" + index_ + " git --git-dir=" + repository_.path +
               " --work-tree=. " + arguments);
  }
  // `unknown`: names of files that may have changed.
  void write_index(const std::optional<ObjectId>& tree, const std::vector<std::string>& unknown = {}) const {
    Lstat files(tree_);
    const WorkTree work_tree{
        .tree = tree,
        .shown = [&](session::NodeId directory,
                     const session::TreeEntry& entry) -> std::optional<session::Attributes> {
          if (std::count(unknown.begin(), unknown.end(), entry.name) > 0) return std::nullopt;
          return files.shown(directory, entry.name);
        }};
    std::ofstream(index_, std::ios::binary) << work_tree_index(*repository_.store, work_tree, kWritten).bytes;
    run("touch -d @" + std::to_string(kWritten.seconds) + " " + index_);
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

TEST_F(WorkTreeIndex, WhatMayHaveChangedIsReadWhateverItsTime) {
  const ObjectId tree = make(kOddTree);
  run("cd " + tree_ + " && for f in a/x a-b/x a.c run; do echo n > $f; touch -d @1700000000 $f; done; echo n > empty");
  write_index(tree);
  EXPECT_EQ(git("diff --name-only"), "") << "git believes what it is told";
  write_index(tree, {"a", "a.c", "a0", "empty", "run"});
  EXPECT_EQ(git("diff --name-only"), "a.c\na/x\nempty\nrun") << "also what is below a directory that nobody knows";
}

TEST_F(WorkTreeIndex, AFileThatTookTheNameTimeAndSizeOfAnotherIsSeen) {
  const ObjectId tree = make(kOddTree);
  write_index(tree);
  run("cd " + tree_ + " && mv a-b a2 && mv a.b a-b && mv a2 a.b && cp -p run a.c && ln -f a0 a/x");
  EXPECT_EQ(git("diff --name-only"), "a-b/x\na.b/x\na.c\na/x");
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
