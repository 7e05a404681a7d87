// What takes a session somewhere else while it is open: discard takes paths back, update brings it onto the new head.
#include <atomic>

#include "tests/session/session_fixture.h"

namespace escrow::session {
namespace {

TEST_F(Sessions, DiscardTakesPathsBackToTheBase) {
  world_.push("main", {{"a", "1"}, {"d/x", "1"}, {"d/y", "1"}});
  auto session = open();
  write(*session, "a", "2");
  write(*session, "n", "2");
  write(*session, "d/x", "2");
  remove(*session, "d/y");
  write(*session, "d/z", "2");
  session->discard({path("a"), path("d"), path("n")});
  EXPECT_FALSE(session->take_stale().empty());
  EXPECT_EQ(read(*session, "a"), "1");
  EXPECT_EQ(read(*session, "d/y"), "1");
  EXPECT_EQ(read(*session, "d/z"), std::nullopt);
  EXPECT_TRUE(session->preview().changes.empty());
}

TEST_F(Sessions, DiscardOfTheWholePrefixTakesEverythingBack) {
  world_.push("main", {{"p/a", "1"}, {"p/d/x", "1"}, {"o", "1"}});
  auto session = open("p");
  write(*session, "a", "2");
  write(*session, "n/m", "2");
  remove(*session, "d/x");
  session->discard({path("p")});
  EXPECT_TRUE(session->preview().changes.empty());
  EXPECT_EQ(read(*session, "d/x"), "1");
}

TEST_F(Sessions, DiscardOfAnUnknownPathChangesNothing) {
  world_.push("main", {{"p/a", "1"}, {"o", "1"}});
  auto session = open("p");
  write(*session, "a", "2");
  std::string message;
  EXPECT_EQ(code_of([&] { session->discard({path("p/a"), path("p/missing")}); }, &message), Errc::not_found);
  EXPECT_NE(message.find("p/missing"), std::string::npos);
  EXPECT_EQ(code_of([&] { session->discard({path("o")}); }), Errc::not_found);
  EXPECT_EQ(read(*session, "a"), "2");
}

TEST_F(Sessions, ADiscardIsOnDiskWhenItReturnsOrSaysThatItIsNot) {
  world_.push("main", {{"a", "1"}});
  auto session = open();
  support::FakeJournal& journal = world_.directories.journal_of(session->id());
  write(*session, "a", "2");
  session->discard({path("a")});
  EXPECT_EQ(journal.durable_count(), journal.batch_count());
  write(*session, "a", "3");
  journal.fail_with(Error(Errc::no_space, "the disk is full"));
  EXPECT_EQ(code_of([&] { session->discard({path("a")}); }), Errc::no_space);
  journal.fail_with(std::nullopt);
  session->discard({path("a")});
  EXPECT_TRUE(session->preview().changes.empty());
}

// Thirty directories that each have the next one under ten names: a few kilobytes, and 10^30 changed paths.
TEST_F(Sessions, AnUpdateThatWouldTakeInMoreThanIsListedIsRefusedAndACommitIsNot) {
  world_.push("main", {{"f", "1"}});
  const auto push_bomb = [&](const std::string& content) {
    ObjectId tree = world_.objects.put_files({{"f", content}});
    for (int level = 0; level < 30; ++level) {
      Tree above;
      for (int i = 0; i < 10; ++i) above.push_back({std::to_string(i), GitMode::tree, tree});
      tree = world_.objects.put_tree(above);
    }
    Commit commit = world_.objects.read_commit(*world_.references.head("main"));
    commit.tree = tree;
    commit.parents = {*world_.references.head("main")};
    const ObjectId head = world_.objects.put_commit(commit);
    world_.references.set("main", head);
    return head;
  };
  const ObjectId base = push_bomb("1");
  auto session = open();
  write(*session, "0/mine", "1");
  const ObjectId head = push_bomb("2");
  std::string message;
  EXPECT_EQ(code_of([&] { session->update(); }, &message), Errc::result_too_large);
  for (const std::string& part : {session->id().text(), head.hex(), std::string("'main'"), std::string("6000000")})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_EQ(session->record().base, base);
  EXPECT_FALSE(session->record().updating_to);
  EXPECT_EQ(session->preview().changes.size(), 1u);
  ASSERT_TRUE(std::holds_alternative<Committed>(session->commit({})));
  const ObjectId made = *world_.references.head("main");
  EXPECT_EQ(world_.objects.read_commit(made).parents, std::vector<ObjectId>{head});
  EXPECT_TRUE(entry_at(world_.objects, world_.objects.read_commit(made).tree, path("0/mine")));
}

TEST_F(Sessions, UpdateTakesInWhatOthersCommittedAndMovesTheBase) {
  world_.push("main", {{"a", "1"}, {"b", "1"}, {"gone/x", "1"}, {"k", "1"}});
  auto session = open();
  write(*session, "a", "2");
  const ObjectId head = world_.push("main", {{"a", "1"}, {"b", "9"}, {"d/n", "9"}, {"k", "1"}});
  const UpdateOutcome outcome = session->update();
  EXPECT_EQ(outcome.base, head);
  EXPECT_EQ(outcome.merged, 3u);
  EXPECT_TRUE(outcome.conflicts.empty());
  EXPECT_FALSE(session->take_stale().empty());
  EXPECT_TRUE(session->take_stale().empty());
  EXPECT_EQ(world_.references.pins_of(session->id()), std::set<ObjectId>{head}) << "the older one is held by it";
  EXPECT_EQ(read(*session, "a"), "2");
  EXPECT_EQ(read(*session, "b"), "9");
  EXPECT_EQ(read(*session, "d/n"), "9");
  EXPECT_FALSE(session->file_system().lookup(kRootNode, "gone"));
  EXPECT_EQ(session->record().base, head);
  EXPECT_EQ(manager_.status(session->id()).record.base, head);
  const auto changes = session->preview().changes;
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].path, "a");
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(head_files(), (Files{{"a", "2"}, {"b", "9"}, {"d/n", "9"}, {"k", "1"}}));
}

TEST_F(Sessions, AnUpdateThatConflictsChangesNothingAndACommitNamesThePathsAgain) {
  const Files first{{"a", "1"}, {"b", "1"}, {"c", "1"}};
  const ObjectId base = world_.push("main", first);
  auto session = open();
  write(*session, "a", "2");
  remove(*session, "c");
  world_.push("main", {{"a", "9"}, {"b", "9"}, {"c", "9"}});
  const UpdateOutcome outcome = session->update();
  ASSERT_EQ(outcome.conflicts.size(), 2u);
  EXPECT_EQ(outcome.conflicts[0].path, "a");
  EXPECT_EQ(outcome.conflicts[1].path, "c");
  EXPECT_EQ(outcome.base, base);
  EXPECT_EQ(outcome.merged, 0u);
  EXPECT_TRUE(session->take_stale().empty());
  EXPECT_EQ(world_.references.pins_of(session->id()), std::set<ObjectId>{base});
  EXPECT_EQ(read(*session, "a"), "2");
  EXPECT_EQ(read(*session, "b"), "1");
  const auto again = commit(*session, true);
  ASSERT_TRUE(std::holds_alternative<Conflicts>(again));
  ASSERT_EQ(std::get<Conflicts>(again).paths.size(), 2u);
  EXPECT_EQ(std::get<Conflicts>(again).paths[0].path, "a");
  EXPECT_EQ(std::get<Conflicts>(again).paths[1].path, "c");
  EXPECT_EQ(head_files(), (Files{{"a", "9"}, {"b", "9"}, {"c", "9"}})) << "theirs is never overwritten";
  // Others take back what the update came across: the session, which never touched it, does not bring it in again.
  world_.push("main", {{"a", "1"}, {"b", "1"}, {"c", "1"}});
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session, true)));
  EXPECT_EQ(head_files(), (Files{{"a", "2"}, {"b", "1"}}));
}

// Dies before each write to the catalog, to the journal and to the references, in turn.
TEST_F(Sessions, AnUpdateThatIsCutShortAtAnyWriteIsFinishedWhenTheSessionIsAttachedAgain) {
  Files first{{"mine", "1"}, {"k", "1"}};
  for (int i = 0; i < 300; ++i) first["d" + std::to_string(i % 7) + "/f" + std::to_string(i)] = "1";
  bool is_over = false;
  for (int step = 1; !is_over; ++step) {
    const ObjectId base = world_.push("main", first);
    auto session = open();
    const SessionId id = session->id();
    write(*session, "mine", "2");
    session->overlay().flush(true);
    Files second = first;
    for (int i = 0; i < 150; ++i) second["d" + std::to_string(i % 7) + "/f" + std::to_string(i)] = "9";
    second.erase("k");
    const ObjectId head = world_.push("main", second);
    std::atomic<int> writes = 0;
    world_.before_each_write([&] {
      if (++writes >= step) throw Error(Errc::no_space, "the process is killed here");
    });
    try {
      session->update();
      is_over = true;
    } catch (const Error&) {
    }
    session->overlay().abandon();  // what a process that dies does no more
    session.reset();
    if (step % 2 == 0) world_.directories.lose_power();
    world_.before_each_write(nullptr);
    session = manager_.attach(id);
    const SessionRecord record = session->record();
    EXPECT_FALSE(record.updating_to) << step;
    EXPECT_TRUE(record.base == base || record.base == head) << step;
    EXPECT_EQ(read(*session, "d0/f0"), record.base == head ? "9" : "1") << step;
    EXPECT_EQ(session->preview().changes.size(), 1u) << step << ": only what the session changed";
    // Others take everything back: only what the session changed is committed.
    world_.push("main", first);
    ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session, true))) << step;
    Files expected = first;
    expected["mine"] = "2";
    EXPECT_EQ(head_files(), expected) << step;
    ASSERT_LT(step, 100);
  }
}

TEST_F(Sessions, AnUpdateThatFailedIsFinishedByTheNextVerb) {
  const Files first{{"a", "1"}, {"b", "1"}, {"mine", "1"}};
  world_.push("main", first);
  auto session = open();
  write(*session, "mine", "2");
  const ObjectId head = world_.push("main", {{"a", "9"}, {"b", "9"}, {"mine", "1"}});
  std::atomic<bool> fails = true;
  world_.before_each_write([&] {
    if (fails && session->record().updating_to) throw Error(Errc::no_space, "the disk is full");
  });
  EXPECT_EQ(code_of([&] { session->update(); }), Errc::no_space);
  EXPECT_TRUE(session->record().updating_to);
  EXPECT_FALSE(session->take_stale().empty()) << "the kernel is told of what changed";
  EXPECT_EQ(code_of([&] { commit(*session, true); }), Errc::no_space) << "not on either base";
  EXPECT_EQ(code_of([&] { session->preview(); }), Errc::no_space);
  fails = false;
  EXPECT_EQ(session->preview().changes.size(), 1u);
  EXPECT_EQ(session->record().base, head);
  EXPECT_EQ(read(*session, "a"), "9");
  EXPECT_EQ(read(*session, "b"), "9");
}

TEST_F(Sessions, AnUpdateCutShortThatNoLongerFitsIsTakenBack) {
  const Files first{{"a", "1"}, {"b", "1"}, {"mine", "1"}};
  const ObjectId base = world_.push("main", first);
  auto session = open();
  write(*session, "mine", "2");
  world_.push("main", {{"a", "9"}, {"b", "9"}, {"mine", "1"}});
  world_.before_each_write([&] {
    if (session->record().updating_to) throw Error(Errc::no_space, "the disk is full");
  });
  EXPECT_EQ(code_of([&] { session->update(); }), Errc::no_space);
  world_.before_each_write(nullptr);
  write(*session, "b", "3");
  session->settle();
  EXPECT_EQ(session->record().base, base);
  EXPECT_EQ(read(*session, "a"), "1");
  EXPECT_EQ(read(*session, "b"), "3");
  EXPECT_EQ(session->preview().changes.size(), 2u);
}

// Nothing else holds what the session still reads of the old base.
TEST_F(Sessions, AnUpdateOntoARewrittenBranchKeepsTheOlderPin) {
  const ObjectId base = world_.push("main", {{"a", "1"}});
  auto session = open();
  world_.references.remove("main");
  const ObjectId head = world_.push("main", {{"a", "9"}});
  EXPECT_TRUE(session->update().conflicts.empty());
  EXPECT_EQ(world_.references.pins_of(session->id()), (std::set<ObjectId>{base, head}));
}

TEST_F(Sessions, AConflictIsResolvedByMakingThePathTheSame) {
  world_.push("main", {{"a", "1"}});
  auto session = open();
  write(*session, "a", "2");
  write(*session, "mine", "2");
  world_.push("main", {{"a", "9"}});
  EXPECT_EQ(session->update().conflicts.size(), 1u);
  write(*session, "a", "9");
  EXPECT_TRUE(session->update().conflicts.empty());
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(head_files(), (Files{{"a", "9"}, {"mine", "2"}}));
}

TEST_F(Sessions, AnUpdatedSessionIsTheSameAfterItsHostDied) {
  Files base{{"k", "1"}, {"m/x", "1"}, {"z", "1"}};
  world_.push("main", base);
  auto session = open();
  const SessionId id = session->id();
  write(*session, "mine", "2");
  const auto node_before = session->file_system().lookup(kRootNode, "z")->node;
  Files others = base;
  for (int i = 0; i < 20; ++i) others["a" + std::to_string(i)] = "9";
  others.erase("k");
  world_.push("main", others);
  EXPECT_TRUE(session->update().conflicts.empty());
  session.reset();
  session = manager_.attach(id);
  EXPECT_EQ(read(*session, "a7"), "9");
  EXPECT_EQ(read(*session, "k"), std::nullopt);
  EXPECT_EQ(read(*session, "m/x"), "1");
  EXPECT_EQ(session->file_system().lookup(kRootNode, "z")->node, node_before);
  ASSERT_EQ(session->preview().changes.size(), 1u);
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  others["mine"] = "2";
  EXPECT_EQ(head_files(), others);
}

TEST_F(Sessions, UpdateOfAPrefixTouchesOnlyWhatIsBelowIt) {
  world_.push("main", {{"p/a", "1"}, {"o", "1"}});
  auto session = open("p");
  write(*session, "mine", "2");
  world_.push("main", {{"p/a", "9"}, {"o", "9"}});
  EXPECT_EQ(session->update().merged, 1u);
  EXPECT_EQ(read(*session, "a"), "9");
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(head_files(), (Files{{"p/a", "9"}, {"p/mine", "2"}, {"o", "9"}}));
}

TEST_F(Sessions, UpdateKeepsADirectoryThatHoldsSomethingOfTheSession) {
  world_.push("main", {{"d/x", "1"}, {"k", "1"}});
  auto session = open();
  write(*session, "d/mine", "2");
  world_.push("main", {{"k", "1"}});
  EXPECT_TRUE(session->update().conflicts.empty());
  EXPECT_EQ(read(*session, "d/mine"), "2");
  EXPECT_EQ(read(*session, "d/x"), std::nullopt);
}

}  // namespace
}  // namespace escrow::session
