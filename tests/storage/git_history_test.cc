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

TEST(Diff, OfTreesThatStandForCountlessPathsShowsTheFilesThatDiffer) {
  HistoryScene scene;
  session::ObjectId tree = scene.staged->put_tree({scene.file("f", "1\n")});
  for (int level = 0; level < 30; ++level) {
    session::Tree above;
    for (int i = 0; i < 10; ++i) above.push_back({std::to_string(i), session::GitMode::tree, tree});
    tree = scene.staged->put_tree(above);
  }
  session::Tree root = scene.staged->read_tree(tree);
  const auto before = scene.staged->put_tree(root);
  root.push_back(scene.file("mine", "1\n"));
  const auto after = scene.staged->put_tree(root);
  EXPECT_EQ(scene.diff(before, after, DiffFormat::name_status), "A\tmine\n");
  EXPECT_EQ(error_of([&] { scene.diff(std::nullopt, after, DiffFormat::name_status); }).code(),
            session::Errc::result_too_large);
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

// Sessions of the catalog, and commits that say that they are by them.
struct Audited : Logged {
  session::SessionRecord begin() {
    session::SessionRecord record{.id = session::SessionId::generate()};
    record.options.branch = "main";
    opened->catalog().insert(record);
    return record;
  }
  ObjectId commit_as(const session::SessionId& id) {
    return commit({file("a", std::to_string(++made_))},
                  "text\n\nEscrow-Session: " + id.text() + "\nEscrow-Committer: user:root\n");
  }
  // The session's commits are `count` new ones.
  void land(session::SessionRecord& record, int count = 1) {
    record.swap_from = references->head("main");
    for (int i = 0; i < count; ++i) record.swap_to = commit_as(record.id);
    move_to(record, session::State::committing);
    record.commit = record.swap_to;
    move_to(record, session::State::committed);
  }
  void move_to(session::SessionRecord& record, session::State state) {
    const session::State before = record.state;
    record.state = state;
    opened->catalog().transition(before, record, "user:ann", "test");
  }
  // Of each commit, oldest first: c claimed, . not.
  std::string claims(const std::string& where = "") {
    std::string text;
    for (const LogEntry& entry : log(where)) text.insert(0, entry.is_claimed ? "c" : ".");
    return text;
  }

 private:
  int made_ = 0;
};

TEST(Log, TrailersThatTheCatalogDoesNotConfirmAreClaimed) {
  Audited scene;
  session::SessionRecord real = scene.begin(), open = scene.begin(), rolled_back = scene.begin();
  scene.move_to(rolled_back, session::State::rolled_back);
  scene.commit({scene.file("a", "0")}, "none\n");
  scene.commit_as(real.id);
  scene.land(real);
  scene.commit_as(real.id);
  scene.commit_as(open.id);
  scene.commit_as(rolled_back.id);
  scene.commit_as(session::SessionId::generate());
  scene.commit({scene.file("a", "s")}, "forged\n\nEscrow-Session: 07ab\n");
  scene.commit({scene.file("a", "n")}, "forged\n\nEscrow-Committer: user:root\n");
  EXPECT_EQ(scene.claims(), ".c.cccccc");
  EXPECT_EQ(scene.claims("a"), ".c.cccccc");
}

TEST(Log, EachCommitThatASessionMadeIsConfirmedAndNoneBelowThem) {
  Audited scene;
  session::SessionRecord record = scene.begin();
  scene.commit_as(record.id);
  scene.land(record, 3);
  scene.commit_as(record.id);
  EXPECT_EQ(scene.claims(), "c...c");
}

TEST(Log, TheFirstCommitsOfABranchAreConfirmed) {
  Audited scene;
  session::SessionRecord one = scene.begin();
  scene.land(one, 2);
  EXPECT_EQ(scene.claims(), "..");
}

TEST(Log, ACommitIsConfirmedFromTheMomentThatItIsInTheBranch) {
  Audited scene;
  session::SessionRecord record = scene.begin();
  record.swap_to = scene.commit_as(record.id);
  scene.move_to(record, session::State::committing);
  EXPECT_EQ(scene.claims(), ".");
}

TEST(Log, ACommitWhoseSessionIsForgottenIsClaimed) {
  Audited scene;
  session::SessionRecord record = scene.begin();
  scene.land(record);
  EXPECT_EQ(scene.claims(), ".");
  scene.opened->catalog().prune({1, 0});
  EXPECT_EQ(scene.claims(), "c");
}

TEST(Log, ACopyIsClaimedAlsoWhenTheSessionsCommitIsGone) {
  Audited scene;
  session::SessionRecord record = scene.begin();
  scene.land(record, 2);
  const std::string gone = record.commit->hex();
  const std::string git = "git -C " + scene.path;
  scene.git("update-ref refs/heads/main $(" + git + " commit-tree main^{tree} -m \"$(" + git +
            " log -1 --format=%B main)\")");
  EXPECT_EQ(scene.claims(), "c");
  scene.git("reflog expire --expire=now --all && " + git + " gc -q --prune=now");
  EXPECT_NE(shell(git + " cat-file -e " + gone).status, 0);
  scene.opened->renew_handles();
  EXPECT_EQ(scene.claims(), "c");
}

TEST(Log, GoesOnBehindACommit) {
  Logged scene;
  const auto first = scene.commit({scene.file("a", "1")}, "first\n");
  const auto second = scene.commit({scene.file("a", "2")}, "second\n");
  std::vector<ObjectId> found;
  const auto take = [&](const LogEntry& entry) {
    found.push_back(entry.id);
    return true;
  };
  EXPECT_TRUE(scene.opened->log("main", "", take, second));
  EXPECT_EQ(found, std::vector<ObjectId>{first});
  EXPECT_TRUE(scene.opened->log("main", "", take, first));
  EXPECT_FALSE(scene.opened->log("main", "", take, ObjectId()));
  EXPECT_EQ(found.size(), 1u);
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
