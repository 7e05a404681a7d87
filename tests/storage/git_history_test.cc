// Diffs and logs.
#include "session/base/log.h"
#include "tests/storage/git_test_repository.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::GitMode;
using session::ObjectId;
using session::Quarantine;
using session::Tree;

struct HistoryScene : GitTestRepository {
  std::unique_ptr<Repository> opened = Repository::open(path, silent);
  std::unique_ptr<GitQuarantine> staged = quarantine();

  session::TreeEntry file(const std::string& name, const std::string& content) {
    return {name, GitMode::regular, staged->put_blob(MemoryBytes(content))};
  }
  std::string diff(const std::optional<ObjectId>& before, const std::optional<ObjectId>& after, DiffFormat format) {
    std::string text;
    opened->write_diff(before, after, format, staged.get(), [&](std::string_view piece) { text += piece; });
    return text;
  }
};

std::string lines(int from, int to) {
  std::string text;
  for (int i = from; i < to; ++i) text += "line " + std::to_string(i) + "\n";
  return text;
}

TEST(Diff, ListsDeletionsFirstAndShowsRenames) {
  HistoryScene scene;
  const auto before = scene.staged->put_tree(
      {scene.file("changed", "old\n"), scene.file("gone", "bye\n"), scene.file("old name", lines(0, 30))});
  const auto after = scene.staged->put_tree(
      {scene.file("added", "hi\n"), scene.file("changed", "new\n"), scene.file("new\tname", lines(0, 29) + "end\n")});
  EXPECT_EQ(scene.diff(before, after, DiffFormat::name_status),
            "D\tgone\nA\tadded\nM\tchanged\nR096\told name\t\"new\\tname\"\n");
}

TEST(Diff, PatchesApplyWithGit) {
  HistoryScene scene;
  const auto before = scene.staged->put_tree({scene.file("a", lines(0, 20)), scene.file("b", "gone\n")});
  const auto after = scene.staged->put_tree(
      {scene.file("a", lines(0, 10) + "x\n" + lines(10, 20)), scene.file("c", "no newline")});
  const std::string patch = scene.diff(before, after, DiffFormat::patch);
  EXPECT_EQ(patch.find("diff --git a/b b/b\ndeleted file"), 0u) << patch;
  std::ofstream(scene.scratch("p")) << patch;
  run("mkdir " + scene.scratch("w") + " && cd " + scene.scratch("w") + " && git init -q && (seq -f 'line %g' 0 19) > a "
      "&& echo gone > b && git apply " + scene.scratch("p") + " && test ! -e b && sed -n 11p a | grep -qx x && "
      "test \"$(cat c)\" = 'no newline'");
}

TEST(Diff, StatCountsLinesAndNamesBinaryFiles) {
  HistoryScene scene;
  const auto after =
      scene.staged->put_tree({scene.file("binary", std::string("a\0b", 3)), scene.file("text", "1\n2\n")});
  EXPECT_EQ(scene.diff(std::nullopt, after, DiffFormat::stat),
            " binary | Bin\n text   | 2 ++\n 2 files changed, 2 insertions(+)\n");
}

TEST(Diff, LargeFilesAreBinaryAndUnread) {
  HistoryScene scene;
  const auto before = scene.staged->put_tree({scene.file("big", std::string(9 << 20, 'a'))});
  const auto after = scene.staged->put_tree({scene.file("big", std::string(9 << 20, 'b'))});
  const std::string patch = scene.diff(before, after, DiffFormat::patch);
  EXPECT_NE(patch.find("Binary files"), std::string::npos);
  EXPECT_LT(patch.size(), 1000u);
}

TEST(Diff, NothingDiffersFromItself) {
  HistoryScene scene;
  const auto tree = scene.staged->put_tree({scene.file("a", "a")});
  for (const DiffFormat format : {DiffFormat::name_status, DiffFormat::stat, DiffFormat::patch}) {
    EXPECT_EQ(scene.diff(tree, tree, format), "");
    EXPECT_EQ(scene.diff(std::nullopt, std::nullopt, format), "");
  }
}

struct Logged : HistoryScene {
  ObjectId commit(const Tree& tree, const std::string& message) {
    const auto head = references->head("main");
    auto made = commit_of(staged->put_tree(tree), head ? std::vector<ObjectId>{*head} : std::vector<ObjectId>{});
    made.message = message;
    const ObjectId id = staged->put_commit(made);
    const auto published = staged->publish(id);
    EXPECT_TRUE(references->compare_and_swap("main", head, id, "test"));
    return id;
  }
  std::vector<LogEntry> log(const std::string& where, std::size_t limit = 100) {
    std::vector<LogEntry> entries;
    opened->log("main", where, [&](const LogEntry& entry) {
      entries.push_back(entry);
      return entries.size() < limit;
    });
    return entries;
  }
};

TEST(Log, ShowsNewestFirstWithTrailers) {
  Logged scene;
  scene.commit({scene.file("a", "1")}, "first\n");
  const auto second = scene.commit({scene.file("a", "2")},
                                   "second\n\nbody\n\nEscrow-Session: 07ab\nEscrow-Committer: user:ann\n");
  const auto entries = scene.log("");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].id, second);
  const std::vector<std::pair<std::string, std::string>> trailers{{"Escrow-Session", "07ab"},
                                                                  {"Escrow-Committer", "user:ann"}};
  EXPECT_EQ(entries[0].trailers, trailers);
  EXPECT_TRUE(entries[1].trailers.empty());
  EXPECT_EQ(scene.log("", 1).size(), 1u);
}

TEST(Log, APathShowsOnlyTheCommitsThatChangedIt) {
  Logged scene;
  const auto sub = scene.staged->put_tree({scene.file("x", "1")});
  const auto changed = scene.staged->put_tree({scene.file("x", "2")});
  const auto first = scene.commit({scene.file("a", "1"), {"d", GitMode::tree, sub}}, "first\n");
  const auto second = scene.commit({scene.file("a", "1"), {"d", GitMode::tree, changed}}, "second\n");
  const auto third = scene.commit({{"d", GitMode::tree, changed}}, "third\n");
  const auto ids = [&](const std::string& where) {
    std::vector<ObjectId> found;
    for (const auto& entry : scene.log(where)) found.push_back(entry.id);
    return found;
  };
  EXPECT_EQ(ids("d/x"), (std::vector<ObjectId>{second, first}));
  EXPECT_EQ(ids("a"), (std::vector<ObjectId>{third, first}));
  EXPECT_TRUE(ids("nothing").empty());
}

TEST(Log, ABranchWithoutCommitsIsNamed) {
  Logged scene;
  const auto error = error_of([&] { scene.log(""); });
  EXPECT_EQ(error.code(), Errc::no_branch);
  EXPECT_NE(std::string(error.what()).find("'main'"), std::string::npos);
}

}  // namespace
}  // namespace escrow::storage
