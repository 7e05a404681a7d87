// Sessions as their host uses them: open, write, and every way one can end.
#include <chrono>
#include <thread>

#include "tests/session/session_fixture.h"

namespace escrow::session {
namespace {

TEST_F(Sessions, WhatIsWrittenBecomesOneCommitAndNothingIsLeft) {
  world_.push("main", {{"a", "1"}, {"d/b", "1"}});
  auto session = open();
  write(*session, "a", "2");
  write(*session, "n/e/w", "3");
  remove(*session, "d/b");
  EXPECT_EQ(head_files(), (Files{{"a", "1"}, {"d/b", "1"}})) << "nobody outside sees it before";
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(head_files(), (Files{{"a", "2"}, {"n/e/w", "3"}}));
  EXPECT_EQ(session->record().state, State::committed);
  EXPECT_TRUE(world_.directories.list().empty());
  EXPECT_EQ(world_.references.pins(), 0u);
}

TEST_F(Sessions, FilesThatStoppedChangingAreStoredBeforeTheCommitAsksForThem) {
  world_.push("main", {{"a", "1"}});
  auto session = open();
  write(*session, "a", "new content");
  write(*session, "b", "other content");
  const auto stored = [&](std::string_view content) {
    return session->quarantine().contains(support::FakeObjectStore().put_blob(content));
  };
  for (int i = 0; i < 6000 && !(stored("new content") && stored("other content")); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(stored("new content") && stored("other content"));
  // What was stored is not trusted once the file has changed again.
  write(*session, "a", "newest content");
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(head_files(), (Files{{"a", "newest content"}, {"b", "other content"}}));
}

TEST_F(Sessions, ARollbackWhileFilesAreBeingStoredLeavesNothing) {
  for (int round = 0; round < 10; ++round) {
    auto session = open();
    for (int i = 0; i < 200; ++i) write(*session, "f" + std::to_string(i), "content " + std::to_string(i));
    std::this_thread::sleep_for(std::chrono::milliseconds(300 + round));  // in the midst of it
    session->rollback(Reason::requested, std::nullopt, "user:alice", false);
    EXPECT_EQ(session->quarantine().contains(support::FakeObjectStore().put_blob("content 7")), false);
  }
}

TEST_F(Sessions, ASessionReadsItsSnapshotWhateverOthersCommit) {
  world_.push("main", {{"a", "1"}, {"d/b", "1"}});
  auto session = open();
  world_.push("main", {{"a", "9"}, {"d/b", "9"}, {"n", "9"}});
  EXPECT_EQ(read(*session, "a"), "1");
  EXPECT_EQ(read(*session, "d/b"), "1");
  EXPECT_EQ(read(*session, "n"), std::nullopt);
}

TEST_F(Sessions, OpeningReadsOneCommitAndTheTreesOfThePrefix) {
  Files files{{"p/q/x", "1"}};
  for (int i = 0; i < 100; ++i) files["d" + std::to_string(i) + "/f"] = "1";
  world_.push("main", files);
  const auto before = world_.objects.reads();
  auto session = open("p/q");
  EXPECT_LE(world_.objects.reads().trees - before.trees, 6u);
  EXPECT_EQ(world_.objects.reads().blobs, before.blobs);
}

TEST_F(Sessions, APrefixIsTheRootOfTheMountAndTheRestIsUntouched) {
  world_.push("main", {{"p/x", "1"}, {"o/x", "1"}});
  auto session = open("p");
  EXPECT_EQ(read(*session, "x"), "1");
  EXPECT_FALSE(session->file_system().lookup(kRootNode, "o"));
  write(*session, "x", "2");
  world_.push("main", {{"p/x", "1"}, {"o/x", "9"}});
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(head_files(), (Files{{"p/x", "2"}, {"o/x", "9"}}));
}

TEST_F(Sessions, APrefixThatDoesNotExistIsCreatedByTheCommit) {
  world_.push("main", {{"o", "1"}});
  auto session = open("p/q");
  write(*session, "x", "2");
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(head_files(), (Files{{"p/q/x", "2"}, {"o", "1"}}));
}

TEST_F(Sessions, AnEmptiedPrefixDisappears) {
  world_.push("main", {{"p/q/x", "1"}, {"o", "1"}});
  auto session = open("p/q");
  remove(*session, "x");
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(head_files(), (Files{{"o", "1"}}));
}

TEST_F(Sessions, APrefixThatIsAFileIsRefusedAndNothingIsLeft) {
  world_.push("main", {{"p", "1"}});
  EXPECT_EQ(code_of([&] { open("p"); }), Errc::not_a_directory);
  EXPECT_TRUE(world_.directories.list().empty());
  EXPECT_TRUE(world_.catalog.list().empty());
}

TEST_F(Sessions, PrefixWithANameThatGitRefusesIsRefusedAndNothingIsLeft) {
  world_.push("main", {{"p", "1"}});
  for (const char* refused : {".git", "a/.GIT/b", "git~1", "a/.gitmodules", ".gitattributes/x"}) {
    std::string message;
    EXPECT_EQ(code_of([&] { open(refused); }, &message), Errc::bad_request);
    EXPECT_NE(message.find(refused), std::string::npos) << message;
  }
  EXPECT_TRUE(world_.directories.list().empty());
  EXPECT_TRUE(world_.catalog.list().empty());
}

TEST_F(Sessions, ABranchThatDoesNotExistIsRefusedUnlessItIsToBeCreated) {
  EXPECT_EQ(code_of([&] { manager_.open(options(), false); }), Errc::no_branch);
  auto session = open();
  write(*session, "first", "1");
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(head_files(), (Files{{"first", "1"}}));
}

TEST_F(Sessions, AuditValuesWithControlCharactersAreRefused) {
  world_.push("main", {{"a", "1"}});
  SessionOptions bad = options();
  bad.audit.image = "image\nEscrow-Committer: user:root";
  EXPECT_EQ(code_of([&] { manager_.open(bad, false); }), Errc::bad_request);
  bad = options();
  bad.audit.committer = "alice";
  EXPECT_EQ(code_of([&] { manager_.open(bad, false); }), Errc::bad_request);
  EXPECT_TRUE(world_.directories.list().empty());
}

TEST_F(Sessions, AFailureWhileOpeningLeavesNothing) {
  world_.push("main", {{"a", "1"}});
  world_.objects.damage(*world_.references.head("main"));
  EXPECT_THROW(open(), Error);
  EXPECT_TRUE(world_.directories.list().empty());
  EXPECT_EQ(world_.references.pins(), 0u);
}

TEST_F(Sessions, NoChangeIsNoCommit) {
  const ObjectId base = world_.push("main", {{"a", "1"}});
  auto session = open();
  write(*session, "a", "2");
  write(*session, "a", "1");
  EXPECT_TRUE(std::holds_alternative<NothingToCommit>(commit(*session)));
  EXPECT_EQ(world_.references.head("main"), base);
  EXPECT_EQ(session->record().reason, Reason::no_changes);
}

TEST_F(Sessions, ARollbackLeavesNoObjectOfTheSession) {
  world_.push("main", {{"a", "1"}});
  const std::size_t before = world_.objects.object_count();
  auto session = open();
  write(*session, "secret", "2");
  session->preview();
  session->rollback(Reason::exit_status, 3, "user:alice", false);
  EXPECT_EQ(world_.objects.object_count(), before);
  EXPECT_TRUE(world_.directories.list().empty());
  EXPECT_EQ(world_.references.pins(), 0u);
  EXPECT_EQ(session->record().state, State::rolled_back);
  EXPECT_EQ(code_of([&] { commit(*session); }), Errc::wrong_state);
}

TEST_F(Sessions, ARollbackCanKeepTheResult) {
  world_.push("main", {{"a", "1"}});
  auto session = open();
  write(*session, "b", "2");
  session->rollback(Reason::signal, 137, "user:alice", true);
  const auto kept = world_.references.result(session->id());
  ASSERT_TRUE(kept);
  EXPECT_EQ(support::files_of(world_.objects, tree_of_commit(world_.objects, kept)), (Files{{"a", "1"}, {"b", "2"}}));
}

TEST_F(Sessions, ADetachedSessionIsTakenOverWithEverythingInIt) {
  world_.push("main", {{"a", "1"}});
  auto session = open();
  const SessionId id = session->id();
  write(*session, "b", "2");
  session->set_mountpoint("/mnt");
  EXPECT_EQ(code_of([&] { manager_.attach(id); }), Errc::attached_elsewhere);
  EXPECT_EQ(manager_.status(id).attachment, Attachment::mounted);
  session.reset();
  EXPECT_EQ(manager_.status(id).attachment, Attachment::lost);
  session = manager_.attach(id);
  session->set_mountpoint("");
  EXPECT_EQ(read(*session, "b"), "2");
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(head_files(), (Files{{"a", "1"}, {"b", "2"}}));
  session.reset();
  EXPECT_EQ(code_of([&] { manager_.attach(id); }), Errc::wrong_state);
  EXPECT_EQ(manager_.status(id).attachment, Attachment::none);
}

TEST_F(Sessions, AFailedCommitLeavesTheSessionOpenWithTheReason) {
  world_.push("main", {{"a", "1"}});
  auto session = open();
  write(*session, "a", "2");
  world_.references.before_swap = [] { throw Error(Errc::no_space, "the disk is full"); };
  EXPECT_EQ(code_of([&] { commit(*session, true); }), Errc::no_space);
  EXPECT_EQ(session->record().state, State::open);
  EXPECT_EQ(session->record().last_error, "the disk is full");
  EXPECT_EQ(session->record().reason, Reason::none);
  world_.references.before_swap = nullptr;
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session, true)));
}

TEST_F(Sessions, ACommitMessageWithAControlCharacterIsRefusedBeforeAnythingHappens) {
  world_.push("main", {{"a", "1"}});
  auto session = open();
  write(*session, "a", "2");
  EXPECT_EQ(code_of([&] { session->commit({"bad\x1b[31m", {}, Reason::success, true, "alice"}); }),
            Errc::bad_request);
  EXPECT_EQ(session->record().last_error, "");
}

TEST_F(Sessions, AReadOnlySessionRefusesEveryChange) {
  world_.push("main", {{"a", "1"}});
  SessionOptions chosen = options();
  chosen.read_only = true;
  auto session = manager_.open(chosen, false);
  EXPECT_EQ(read(*session, "a"), "1");
  EXPECT_EQ(code_of([&] { write(*session, "a", "2"); }), Errc::read_only);
}

TEST_F(Sessions, APreviewShowsWhatACommitWouldDo) {
  world_.push("main", {{"p/a", "1"}, {"p/b", "1"}});
  auto session = open("p");
  write(*session, "c", "2");
  remove(*session, "a");
  session->file_system().make_node(kRootNode, "fifo", S_IFIFO | 0644, 0, {});
  const Preview preview = session->preview();
  ASSERT_EQ(preview.changes.size(), 2u);
  EXPECT_EQ(preview.changes[0].path, "p/a");
  EXPECT_EQ(preview.changes[0].did, Did::deleted);
  EXPECT_EQ(preview.changes[1].path, "p/c");
  ASSERT_EQ(preview.omitted.size(), 1u);
  EXPECT_EQ(preview.omitted[0].kind, OmissionKind::fifo);
  EXPECT_EQ(session->omitted().size(), 1u);
}

TEST_F(Sessions, ATreeMadeElsewhereIsCommittedInTheSameOrder) {
  world_.push("main", {{"a", "1"}});
  auto session = open();
  Quarantine& quarantine = session->quarantine();
  const ObjectId tree = quarantine.put_tree(
      {{"imported", GitMode::regular, quarantine.put_blob(support::StringSource("content"))}});
  const CommitRequest request{"import", {}, Reason::success, true, "user:alice"};
  ASSERT_TRUE(std::holds_alternative<Committed>(session->commit_tree(tree, request)));
  EXPECT_EQ(head_files(), (Files{{"imported", "content"}}));
}

TEST_F(Sessions, ConflictsAreForeseenWhileTheSessionGoesOn) {
  world_.push("main", {{"a", "1"}, {"b", "1"}});
  auto session = open();
  write(*session, "a", "2");
  EXPECT_FALSE(session->foreseen_conflicts());
  world_.push("main", {{"a", "1"}, {"b", "9"}});
  EXPECT_FALSE(session->foreseen_conflicts());
  EXPECT_TRUE(session->preview().conflicts.empty());
  world_.push("main", {{"a", "9"}, {"b", "9"}});
  const std::vector<Conflict> shown = session->preview().conflicts;
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0].path, "a");
  const auto foreseen = session->foreseen_conflicts();
  ASSERT_TRUE(foreseen);
  ASSERT_EQ(foreseen->paths.size(), 1u);
  EXPECT_EQ(foreseen->paths[0].path, "a");
  write(*session, "a", "9");
  EXPECT_FALSE(session->foreseen_conflicts());
  ASSERT_TRUE(std::holds_alternative<NothingToCommit>(commit(*session)));
}

// Not one bit of it was changed here, so only the mark tells the file from an unchanged one.
TEST_F(Sessions, NoCommitOrUpdatePassesOverAFileThatLacksWhatProgramsStored) {
  world_.push("main", {{"a", "1"}, {"b", "1"}});
  auto session = open();
  write(*session, "new", "1");
  FileSystem& files = session->file_system();
  const NodeId a = files.lookup(kRootNode, "a")->node;
  files.pages_lost(a, 0, 4096);
  world_.push("main", {{"a", "9"}, {"b", "1"}});
  std::string message;
  EXPECT_EQ(code_of([&] { commit(*session, true); }, &message), Errc::data_lost);
  EXPECT_NE(message.find("cannot commit session"), std::string::npos) << message;
  EXPECT_NE(message.find("stored in a could not be written back"), std::string::npos) << message;
  EXPECT_EQ(session->record().state, State::open);
  session->gate().move_to(WriteGate::Position::open);
  EXPECT_EQ(code_of([&] { session->update(); }, &message), Errc::data_lost);
  EXPECT_NE(message.find("cannot update session"), std::string::npos) << message;
  session->discard({path("a")});
  session->update();
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session)));
  EXPECT_EQ(head_files(), (Files{{"a", "9"}, {"b", "1"}, {"new", "1"}}));
}

TEST_F(Sessions, AreFoundByAUniqueBeginningOfTheirId) {
  world_.push("main", {{"a", "1"}});
  auto session = open();
  EXPECT_EQ(manager_.resolve(session->id().text()), session->id());
  EXPECT_EQ(manager_.resolve(session->id().text().substr(0, 12)), session->id());
  EXPECT_EQ(code_of([&] { manager_.resolve("no such"); }), Errc::no_session);
  EXPECT_EQ(code_of([&] { manager_.resolve(""); }), Errc::no_session);
  std::vector<std::unique_ptr<Session>> more;
  for (int i = 0; i < 20; ++i) more.push_back(open());
  std::map<char, int> starts;
  for (const auto& listed : manager_.list()) ++starts[listed.record.id.text()[0]];
  for (const auto& start : starts) {
    if (start.second < 2) continue;
    EXPECT_EQ(code_of([&] { manager_.resolve(std::string(1, start.first)); }), Errc::ambiguous_session);
    return;
  }
  FAIL() << "twenty-one ids begin with different digits of sixteen";
}

TEST_F(Sessions, AnOrphanedRunIsRolledBackAndKeepsItsResultWhenAsked) {
  world_.push("main", {{"a", "1"}});
  SessionOptions chosen = options();
  chosen.ephemeral = true;
  chosen.keep_on_failure = true;
  auto session = manager_.open(chosen, false);
  const SessionId id = session->id();
  write(*session, "b", "2");
  EXPECT_TRUE(manager_.recover().empty()) << "its host is alive";
  session.reset();
  EXPECT_EQ(manager_.recover().size(), 1u);
  EXPECT_EQ(manager_.status(id).record.state, State::rolled_back);
  EXPECT_EQ(manager_.status(id).record.reason, Reason::host_lost);
  const auto kept = world_.references.result(id);
  ASSERT_TRUE(kept);
  EXPECT_EQ(support::files_of(world_.objects, tree_of_commit(world_.objects, kept)), (Files{{"a", "1"}, {"b", "2"}}));
  EXPECT_TRUE(world_.directories.list().empty());
  EXPECT_TRUE(manager_.recover().empty());
}

TEST_F(Sessions, AnOrphanedRunWhoseCommitFailedForAnOutsideReasonStays) {
  world_.push("main", {{"a", "1"}});
  SessionOptions chosen = options();
  chosen.ephemeral = true;
  auto session = manager_.open(chosen, false);
  const SessionId id = session->id();
  write(*session, "b", "2");
  world_.references.before_swap = [] { throw Error(Errc::no_space, "the disk is full"); };
  EXPECT_THROW(commit(*session), Error);
  world_.references.before_swap = nullptr;
  session.reset();
  EXPECT_TRUE(manager_.recover().empty());
  session = manager_.attach(id);
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(*session, true)));
  EXPECT_EQ(head_files(), (Files{{"a", "1"}, {"b", "2"}}));
}

TEST_F(Sessions, ADetachedSessionOfAPersonIsNotTouchedByRecovery) {
  world_.push("main", {{"a", "1"}});
  auto session = open();
  const SessionId id = session->id();
  session->set_mountpoint("/mnt");
  session.reset();
  EXPECT_TRUE(manager_.recover().empty());
  EXPECT_EQ(manager_.status(id).record.state, State::open);
}

TEST_F(Sessions, ParallelSessionsAllLandOneOnTopOfTheOther) {
  world_.push("main", {{"a", "1"}});
  constexpr int kSessions = 8;
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < kSessions; ++i) {
    sessions.push_back(open());
    write(*sessions.back(), "n" + std::to_string(i), "2");
  }
  int committed = 0;
  for (auto& session : sessions) committed += std::holds_alternative<Committed>(commit(*session));
  EXPECT_EQ(committed, kSessions);
  EXPECT_EQ(head_files().size(), kSessions + 1u);
  int length = 0;
  for (auto at = world_.references.head("main"); at; ++length) {
    const Commit one = world_.objects.read_commit(*at);
    ASSERT_LE(one.parents.size(), 1u);
    at = one.parents.empty() ? std::nullopt : std::optional(one.parents.front());
  }
  EXPECT_EQ(length, kSessions + 1);
}

// A kill in between leaves a session that has not gone back, and caches of which nothing is published.
TEST_F(Sessions, ARestoreDropsCachesBeforeTheSessionGoesBack) {
  const auto session = open();
  write(*session, "a", "first");
  session->create_savepoint("here", {});
  write(*session, "a", "second");
  world_.directories.drop_caches = [&]() -> std::vector<std::string> {
    EXPECT_EQ("second", read(*session, "a"));
    throw Error(Errc::no_space, "no room");
  };
  EXPECT_EQ(Errc::no_space, code_of([&] { session->restore_savepoint("here"); }));
  EXPECT_EQ("second", read(*session, "a"));
  world_.directories.drop_caches = [] { return std::vector<std::string>{"c"}; };
  EXPECT_EQ(std::vector<std::string>{"c"}, session->restore_savepoint("here").caches);
  EXPECT_EQ("first", read(*session, "a"));
}

}  // namespace
}  // namespace escrow::session
