// Sessions as their host uses them: open, write, and every way one can end, over a repository in memory.
#include "session/session.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "session/error.h"
#include "session/session_manager.h"
#include "session/tree_walk.h"
#include "tests/session/fake_services.h"

namespace escrow::session {
namespace {

using Files = std::map<std::string, std::string>;

class Sessions : public testing::Test {
 protected:
  SessionOptions options(const std::string& prefix = "") {
    SessionOptions chosen;
    chosen.branch = "main";
    chosen.prefix = RepoPath::parse(prefix, "prefix");
    chosen.audit = {"user:alice", "user:bob", "sandbox", "", "", ""};
    return chosen;
  }
  std::unique_ptr<Session> open(const std::string& prefix = "") { return manager_.open(options(prefix), true); }

  NodeId directory(FileSystem& files, std::string_view path, bool create) {
    NodeId at = kRootNode;
    for (std::size_t slash; (slash = path.find('/')) != std::string_view::npos; path.remove_prefix(slash + 1)) {
      const auto name = path.substr(0, slash);
      auto next = files.lookup(at, name);
      if (!next && create) next = files.make_node(at, name, S_IFDIR | 0755, 0, {});
      if (!next) throw Error(Errc::not_found, "no such directory");
      at = next->node;
    }
    return at;
  }
  static std::string_view last(std::string_view path) { return path.substr(path.rfind('/') + 1); }

  void write(Session& session, const std::string& path, const std::string& content) {
    FileSystem& files = session.file_system();
    const NodeId parent = directory(files, path, true);
    auto found = files.lookup(parent, last(path));
    if (!found) found = files.make_node(parent, last(path), S_IFREG | 0644, 0, {});
    AttributeChange truncate;
    truncate.size_bytes = 0;
    files.change_attributes(found->node, truncate);
    files.write(found->node, 0, std::as_bytes(std::span(content)), WriteOrigin::call);
  }
  void remove(Session& session, const std::string& path) {
    session.file_system().unlink(directory(session.file_system(), path, false), last(path));
  }
  std::optional<std::string> read(Session& session, const std::string& path) {
    FileSystem& files = session.file_system();
    const auto found = files.lookup(directory(files, path, true), last(path));
    if (!found) return std::nullopt;
    std::string content(found->size_bytes, '\0');
    files.read(found->node, 0, std::as_writable_bytes(std::span(content)));
    return content;
  }
  CommitOutcome commit(Session& session, bool by_hand = false) {
    session.gate().move_to(WriteGate::Position::sealed);
    return session.commit({"a message", 0, Reason::success, by_hand, "user:alice"});
  }
  Files head_files() {
    return support::files_of(world_.objects, tree_of_commit(world_.objects, world_.references.head("main")));
  }
  Errc code_of(const std::function<void()>& work, std::string* message = nullptr) {
    try {
      work();
    } catch (const Error& error) {
      if (message) *message = error.what();
      return error.code();
    }
    ADD_FAILURE() << "nothing was thrown";
    return Errc::unavailable;
  }
  RepoPath path(const std::string& text) { return RepoPath::parse(text, "path"); }

  support::FakeWorld world_;
  SessionManager manager_{world_.services()};
};

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
  for (int i = 0; i < 1000 && !(stored("new content") && stored("other content")); ++i)
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

// ---- discard ----

TEST_F(Sessions, DiscardTakesPathsBackToTheBase) {
  world_.push("main", {{"a", "1"}, {"d/x", "1"}, {"d/y", "1"}});
  auto session = open();
  write(*session, "a", "2");
  write(*session, "n", "2");
  write(*session, "d/x", "2");
  remove(*session, "d/y");
  write(*session, "d/z", "2");
  EXPECT_FALSE(session->discard({path("a"), path("d"), path("n")}).empty());
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

// ---- update ----

TEST_F(Sessions, UpdateTakesInWhatOthersCommittedAndMovesTheBase) {
  world_.push("main", {{"a", "1"}, {"b", "1"}, {"gone/x", "1"}, {"k", "1"}});
  auto session = open();
  write(*session, "a", "2");
  const ObjectId head = world_.push("main", {{"a", "1"}, {"b", "9"}, {"d/n", "9"}, {"k", "1"}});
  const UpdateOutcome outcome = session->update();
  EXPECT_EQ(outcome.base, head);
  EXPECT_EQ(outcome.merged, 3u);
  EXPECT_TRUE(outcome.conflicts.empty());
  EXPECT_FALSE(outcome.stale.empty());
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

TEST_F(Sessions, UpdateKeepsConflictingPathsAndACommitNamesThemAgain) {
  const ObjectId base = world_.push("main", {{"a", "1"}, {"b", "1"}, {"c", "1"}});
  auto session = open();
  write(*session, "a", "2");
  remove(*session, "c");
  world_.push("main", {{"a", "9"}, {"b", "9"}, {"c", "9"}});
  const UpdateOutcome outcome = session->update();
  ASSERT_EQ(outcome.conflicts.size(), 2u);
  EXPECT_EQ(outcome.conflicts[0].path, "a");
  EXPECT_EQ(outcome.conflicts[1].path, "c");
  EXPECT_EQ(outcome.base, base);
  EXPECT_EQ(read(*session, "a"), "2");
  EXPECT_EQ(read(*session, "b"), "9");
  const auto again = commit(*session, true);
  ASSERT_TRUE(std::holds_alternative<Conflicts>(again));
  ASSERT_EQ(std::get<Conflicts>(again).paths.size(), 2u);
  EXPECT_EQ(std::get<Conflicts>(again).paths[0].path, "a");
  EXPECT_EQ(std::get<Conflicts>(again).paths[1].path, "c");
  EXPECT_EQ(head_files(), (Files{{"a", "9"}, {"b", "9"}, {"c", "9"}})) << "theirs is never overwritten";
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

// ---- finding and recovering ----

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
  for (const auto& [digit, count] : starts) {
    if (count < 2) continue;
    EXPECT_EQ(code_of([&] { manager_.resolve(std::string(1, digit)); }), Errc::ambiguous_session);
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

}  // namespace
}  // namespace escrow::session
