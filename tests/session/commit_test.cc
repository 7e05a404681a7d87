// The durable order with fakes: every outcome, a crash after every step, and every failure on the way.
#include "session/transaction/commit.h"

#include <gtest/gtest.h>

#include "session/base/error.h"
#include "session/transaction/recovery.h"
#include "session/trees/tree_walk.h"
#include "tests/session/fake_services.h"

namespace escrow::session {
namespace {

using support::Files;

// Not a std::exception: nothing of the core may run on the way out, as when the process is killed.
struct Killed {};

class StopAt final : public CommitObserver {
 public:
  explicit StopAt(int step) : step_(step) {}
  void reached(CommitStep step) override {
    if (static_cast<int>(step) == step_) throw Killed();
  }

 private:
  const int step_;
};

class Recorder final : public CommitObserver {
 public:
  explicit Recorder(support::FakeWorld& world, SessionId id) : world_(world), id_(std::move(id)) {}
  void reached(CommitStep step) override {
    const SessionRecord row = *world_.catalog.find(id_);
    const auto head = world_.references.head("main");
    std::string line = std::to_string(static_cast<int>(step)) + " " + name_of(row.state);
    line += row.swap_to && head == row.swap_to ? " moved" : "";
    line += row.swap_to && world_.objects.contains(*row.swap_to) ? " durable" : "";
    line += world_.references.is_pinned(id_) ? " pinned" : "";
    line += world_.directories.list().empty() ? " removed" : "";
    seen.push_back(line);
  }
  std::vector<std::string> seen;

 private:
  support::FakeWorld& world_;
  const SessionId id_;
};

class CommitOrder : public testing::Test {
 protected:
  struct Opened {
    SessionRecord record;
    std::unique_ptr<SessionDirectory> held;
    SessionResult result;
  };

  // A session over the head of main that made the tree `files`.
  Opened open(const Files& files, bool ephemeral = false) {
    SessionRecord record{.id = SessionId::generate()};
    record.options.branch = "main";
    record.options.audit.committer = "user:alice";
    record.options.audit.issuer = "user:alice";
    record.options.audit.source = "sandbox";
    record.options.ephemeral = ephemeral;
    record.base = world_.references.head("main");
    auto held = world_.directories.create(record.id);
    if (record.base) world_.references.pin_base(record.id, *record.base);
    world_.catalog.insert(record);
    SessionResult result{record.base, tree_of_commit(world_.objects, record.base), put(held->quarantine(), files)};
    return {record, std::move(held), result};
  }
  // In the session's quarantine only, as build_tree leaves it.
  TreeRoot put(Quarantine& quarantine, const Files& files) {
    Tree tree;
    std::map<std::string, Files> below;
    for (const auto& [path, content] : files) {
      const std::size_t slash = path.find('/');
      if (slash == std::string::npos)
        tree.push_back({path, GitMode::regular, quarantine.put_blob(support::StringSource(content))});
      else
        below[path.substr(0, slash)][path.substr(slash + 1)] = content;
    }
    for (const auto& [name, rest] : below) tree.push_back({name, GitMode::tree, *put(quarantine, rest)});
    std::sort(tree.begin(), tree.end(), tree_order_less);
    if (tree.empty()) return std::nullopt;
    return quarantine.put_tree(tree);
  }

  CommitOutcome commit(Opened& session, CommitObserver* observer = nullptr, bool by_hand = false) {
    session.record.reason = Reason::success;
    session.record.exit_code = 0;
    return commit_result(world_.services(observer), session.record, *session.held, session.result,
                         by_hand ? CommitFor::by_hand : CommitFor::run, "user:alice");
  }
  void kill_at(Opened& session, int step, bool by_hand = false) {
    StopAt stop(step);
    EXPECT_THROW(commit(session, &stop, by_hand), Killed);
    session.held.reset();
  }
  std::vector<std::string> recover() {
    return recover_sessions(world_.services(), [this](const SessionRecord& record, SessionDirectory& directory) {
      return SessionResult{record.base, tree_of_commit(world_.objects, record.base),
                           put(directory.quarantine(), {{"kept", "result"}})};
    });
  }

  SessionRecord row(const Opened& session) { return *world_.catalog.find(session.record.id); }
  Files head_files() {
    const auto head = world_.references.head("main");
    return head ? support::files_of(world_.objects, tree_of_commit(world_.objects, head)) : Files();
  }
  Commit head_commit() { return world_.objects.read_commit(*world_.references.head("main")); }
  void expect_nothing_left(const Opened& session) {
    EXPECT_TRUE(world_.directories.list().empty());
    EXPECT_FALSE(world_.references.is_pinned(session.record.id));
  }

  support::FakeWorld world_;
};

TEST_F(CommitOrder, PutsTheSessionsTreeOnTheHeadAndRecordsIt) {
  const ObjectId base = world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}, {"d/b", "1"}});
  const auto outcome = commit(session);
  ASSERT_TRUE(std::holds_alternative<Committed>(outcome));
  EXPECT_EQ(std::get<Committed>(outcome).counts.added, 1u);
  EXPECT_EQ(std::get<Committed>(outcome).counts.modified, 1u);
  EXPECT_EQ(world_.references.head("main"), std::get<Committed>(outcome).commit);
  EXPECT_EQ(head_files(), (Files{{"a", "2"}, {"d/b", "1"}}));
  EXPECT_EQ(head_commit().parents, std::vector<ObjectId>{base});
  EXPECT_EQ(head_commit().author.name, "alice");
  EXPECT_NE(head_commit().message.find("Escrow-Exit-Code: 0\nEscrow-Base: " + base.hex() + "\n"), std::string::npos);
  EXPECT_EQ(row(session).state, State::committed);
  EXPECT_EQ(row(session).reason, Reason::success);
  EXPECT_EQ(row(session).commit, std::get<Committed>(outcome).commit);
  expect_nothing_left(session);
}

TEST_F(CommitOrder, StepsComeInTheDurableOrder) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  Recorder recorder(world_, session.record.id);
  commit(session, &recorder);
  EXPECT_EQ(recorder.seen, (std::vector<std::string>{
                               "1 open pinned", "2 open pinned", "3 committing durable pinned",
                               "4 committing moved durable pinned", "5 committed moved durable pinned",
                               "6 committed moved durable removed"}));
}

TEST_F(CommitOrder, ObjectsAreInTheRepositoryAfterStepTwoAndNotBefore) {
  world_.push("main", {{"a", "1"}});
  for (const int step : {1, 2}) {
    Opened session = open({{"a", "new content " + std::to_string(step)}});
    const std::size_t before = world_.objects.object_count();
    kill_at(session, step);
    EXPECT_EQ(world_.objects.object_count() - before, step == 1 ? 0u : 3u) << "blob, tree and commit, step " << step;
  }
}

TEST_F(CommitOrder, CreatesABranchThatDoesNotExistYet) {
  Opened session = open({{"a", "1"}});
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(session)));
  EXPECT_TRUE(head_commit().parents.empty());
  EXPECT_EQ(head_files(), (Files{{"a", "1"}}));
}

TEST_F(CommitOrder, MergesOntoABranchThatSomebodyElseCreatedMeanwhile) {
  Opened session = open({{"a", "1"}});
  const ObjectId theirs = world_.push("main", {{"b", "9"}});
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(session)));
  EXPECT_EQ(head_commit().parents, std::vector<ObjectId>{theirs});
  EXPECT_EQ(head_files(), (Files{{"a", "1"}, {"b", "9"}}));
}

TEST_F(CommitOrder, RefusesABranchThatWasDeletedAndStaysOpen) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  world_.references.remove("main");
  EXPECT_THROW(commit(session), Error);
  EXPECT_EQ(row(session).state, State::open);
  EXPECT_NE(row(session).last_error.find("deleted"), std::string::npos);
}

TEST_F(CommitOrder, DeletingEverythingCommitsTheEmptyTree) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({});
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(session)));
  EXPECT_TRUE(world_.objects.read_tree(head_commit().tree).empty());
}

TEST_F(CommitOrder, NoChangeIsNoCommit) {
  const ObjectId base = world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "1"}});
  EXPECT_TRUE(std::holds_alternative<NothingToCommit>(commit(session)));
  EXPECT_EQ(world_.references.head("main"), base);
  EXPECT_EQ(row(session).state, State::committed);
  EXPECT_EQ(row(session).reason, Reason::no_changes);
  EXPECT_FALSE(row(session).commit);
  expect_nothing_left(session);
}

TEST_F(CommitOrder, AChangeThatOthersAlreadyCommittedIsNoCommit) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  const ObjectId theirs = world_.push("main", {{"a", "2"}, {"b", "9"}});
  EXPECT_TRUE(std::holds_alternative<NothingToCommit>(commit(session)));
  EXPECT_EQ(world_.references.head("main"), theirs);
  EXPECT_EQ(row(session).reason, Reason::no_changes);
}

TEST_F(CommitOrder, ALostSwapIsReconciledAgainstTheNewHead) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  int losses = 0;
  Files others{{"a", "1"}};
  world_.references.before_swap = [&] {
    if (++losses > 3) return;
    others["b" + std::to_string(losses)] = "9";
    world_.push("main", others);
  };
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(session)));
  EXPECT_EQ(head_files(), (Files{{"a", "2"}, {"b1", "9"}, {"b2", "9"}, {"b3", "9"}}));
}

TEST_F(CommitOrder, AConflictFoundAfterALostSwapMovesNothing) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  ObjectId theirs;
  world_.references.before_swap = [&] { theirs = world_.push("main", {{"a", "9"}}); };
  ASSERT_TRUE(std::holds_alternative<Conflicts>(commit(session)));
  EXPECT_EQ(world_.references.head("main"), theirs);
  EXPECT_EQ(row(session).state, State::commit_failed);
  EXPECT_FALSE(row(session).swap_to);
}

TEST_F(CommitOrder, ASwapThatIsLostForEverGivesUpAndStaysOpen) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  int moves = 0;
  world_.references.before_swap = [&] { world_.push("main", {{"a", "1"}, {"n", std::to_string(++moves)}}); };
  EXPECT_THROW(commit(session), Error);
  EXPECT_EQ(moves, kMaxSwapAttempts);
  EXPECT_EQ(row(session).state, State::open);
}

TEST_F(CommitOrder, AConflictFailsTheCommitAndKeepsTheResult) {
  const ObjectId base = world_.push("main", {{"a", "1"}, {"b", "1"}});
  Opened session = open({{"a", "2"}, {"b", "1"}, {"c", "2"}});
  const ObjectId theirs = world_.push("main", {{"a", "9"}, {"b", "9"}});
  const auto outcome = commit(session);
  ASSERT_TRUE(std::holds_alternative<Conflicts>(outcome));
  ASSERT_EQ(std::get<Conflicts>(outcome).paths.size(), 1u);
  EXPECT_EQ(std::get<Conflicts>(outcome).paths[0].path, "a");
  EXPECT_EQ(world_.references.head("main"), theirs);
  EXPECT_EQ(row(session).state, State::commit_failed);
  EXPECT_EQ(row(session).reason, Reason::conflict);
  EXPECT_EQ(row(session).conflicts, std::vector<std::string>{"a"});
  const auto kept = world_.references.result(session.record.id);
  ASSERT_TRUE(kept);
  EXPECT_EQ(world_.objects.read_commit(*kept).parents, std::vector<ObjectId>{base});
  EXPECT_EQ(support::files_of(world_.objects, tree_of_commit(world_.objects, kept)),
            (Files{{"a", "2"}, {"b", "1"}, {"c", "2"}}));
  expect_nothing_left(session);
}

TEST_F(CommitOrder, AConflictOfACommitByHandLeavesTheSessionOpen) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  world_.push("main", {{"a", "9"}});
  ASSERT_TRUE(std::holds_alternative<Conflicts>(commit(session, nullptr, true)));
  EXPECT_EQ(row(session).state, State::open);
  EXPECT_EQ(row(session).reason, Reason::none);
  EXPECT_FALSE(world_.references.result(session.record.id));
  EXPECT_TRUE(world_.references.is_pinned(session.record.id));
  EXPECT_EQ(world_.directories.list().size(), 1u);
}

TEST_F(CommitOrder, AFailureBeforeTheSwapReturnsToOpenWithTheReason) {
  const ObjectId base = world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  world_.references.before_swap = [] { throw Error(Errc::no_space, "no space for the reference"); };
  EXPECT_THROW(commit(session), Error);
  EXPECT_EQ(world_.references.head("main"), base);
  EXPECT_EQ(row(session).state, State::open);
  EXPECT_EQ(row(session).last_error, "no space for the reference");
  EXPECT_FALSE(row(session).swap_to);
  world_.references.before_swap = nullptr;
  EXPECT_TRUE(std::holds_alternative<Committed>(commit(session))) << "and can be committed once there is space";
  EXPECT_EQ(row(session).last_error, "");
}

// The move may not be on disk: it is put there again, and only then is there a commit.
TEST_F(CommitOrder, AFailureAfterTheBranchMovedIsACommitOnceTheMoveIsOnDisk) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  int made_durable = 0;
  world_.references.after_swap = [] { throw Error(Errc::input_output, "the directory could not be synced"); };
  world_.references.before_durable = [&](const std::string&) { ++made_durable; };
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(session)));
  EXPECT_EQ(made_durable, 1);
  EXPECT_EQ(row(session).state, State::committed);
  expect_nothing_left(session);
}

TEST_F(CommitOrder, AFailureAfterTheBranchMovedLeavesTheDecisionToRecovery) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  world_.references.after_swap = [] { throw Error(Errc::input_output, "the directory could not be synced"); };
  world_.references.before_durable = [](const std::string&) { throw Error(Errc::input_output, "nor again"); };
  try {
    commit(session);
    ADD_FAILURE() << "it was said to be committed";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("may have moved"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("the next command finds out"), std::string::npos) << error.what();
  }
  EXPECT_EQ(row(session).state, State::committing);
  session.held.reset();
  recover();
  EXPECT_EQ(row(session).state, State::committing) << "still not on disk";
  world_.references.before_durable = nullptr;
  EXPECT_EQ(recover().size(), 1u);
  EXPECT_EQ(row(session).state, State::committed);
  EXPECT_EQ(head_files(), (Files{{"a", "2"}}));
}

// The branch is somewhere else by then, and never was at the commit.
TEST_F(CommitOrder, AFailureBeforeTheSwapIsTakenBackThoughOthersMovedTheBranch) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  world_.references.before_swap = [&] {
    world_.push("main", {{"a", "1"}, {"b", "9"}});
    throw Error(Errc::busy, "another process has held the lock");
  };
  EXPECT_THROW(commit(session), Error);
  EXPECT_EQ(row(session).state, State::open);
  EXPECT_NE(row(session).last_error.find("held the lock"), std::string::npos);
}

TEST_F(CommitOrder, AFullDiskInTheCatalogBeforeTheSwapMovesNothing) {
  const ObjectId base = world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  world_.catalog.before_transition = [](const SessionRecord&) { throw Error(Errc::no_space, "disk full"); };
  EXPECT_THROW(commit(session), Error);
  EXPECT_EQ(world_.references.head("main"), base);
  EXPECT_EQ(row(session).state, State::open);
}

TEST_F(CommitOrder, AFullDiskInTheCatalogAfterTheSwapIsACommitAllTheSame) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  world_.catalog.before_transition = [](const SessionRecord& next) {
    if (next.state != State::committing) throw Error(Errc::no_space, "disk full");
  };
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(session)));
  EXPECT_EQ(session.record.state, State::committed) << "for this process it is over";
  EXPECT_EQ(row(session).state, State::committing);
  EXPECT_NE(world_.log.lines().back().find("disk full"), std::string::npos);
  world_.catalog.before_transition = nullptr;
  session.held.reset();
  recover();
  EXPECT_EQ(row(session).state, State::committed);
  expect_nothing_left(session);
}

TEST_F(CommitOrder, RoomThatTheSessionItselfTookIsEnoughToRecordItsEnd) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  int refused = 0;
  world_.catalog.before_transition = [&](const SessionRecord& next) {
    if (next.state == State::committed && ++refused == 1) throw Error(Errc::no_space, "disk full");
  };
  ASSERT_TRUE(std::holds_alternative<Committed>(commit(session)));
  EXPECT_EQ(row(session).state, State::committed);
  expect_nothing_left(session);
}

TEST_F(CommitOrder, EveryTransitionIsInTheHistoryWithWhoAndWhy) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  commit(session);
  EXPECT_EQ(world_.catalog.history(), (std::vector<std::string>{"user:alice: open -> committing: committing",
                                                                "user:alice: committing -> committed: committed"}));
}

TEST_F(CommitOrder, RollbackLeavesNothing) {
  world_.push("main", {{"a", "1"}});
  const std::size_t before = world_.objects.object_count();
  Opened session = open({{"a", "2"}});
  session.record.last_error = "cannot store secret-name";
  roll_back(world_.services(), session.record, *session.held, {Reason::exit_status, 3, "user:alice", std::nullopt});
  EXPECT_EQ(row(session).state, State::rolled_back);
  EXPECT_EQ(row(session).reason, Reason::exit_status);
  EXPECT_EQ(row(session).exit_code, 3);
  EXPECT_EQ(row(session).last_error, "");
  EXPECT_EQ(world_.objects.object_count(), before);
  EXPECT_FALSE(world_.references.result(session.record.id));
  expect_nothing_left(session);
}

TEST_F(CommitOrder, RollbackCanKeepTheResult) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  roll_back(world_.services(), session.record, *session.held, {Reason::signal, 137, "user:alice", session.result});
  const auto kept = world_.references.result(session.record.id);
  ASSERT_TRUE(kept);
  EXPECT_EQ(support::files_of(world_.objects, tree_of_commit(world_.objects, kept)), (Files{{"a", "2"}}));
  expect_nothing_left(session);
}

TEST_F(CommitOrder, TheFirstCauseRecordedDecides) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  SessionRecord late = session.record;
  roll_back(world_.services(), session.record, *session.held, {Reason::cancelled, std::nullopt, "alice", {}});
  EXPECT_THROW(commit_result(world_.services(), late, *session.held, session.result, CommitFor::run, "alice"), Error);
  EXPECT_EQ(row(session).state, State::rolled_back);
  EXPECT_EQ(row(session).reason, Reason::cancelled);
  EXPECT_EQ(head_files(), (Files{{"a", "1"}}));
}

TEST_F(CommitOrder, ABranchThatWasRewoundAfterTheMoveStillCountsAsMoved) {
  const ObjectId base = world_.push("main", {{"a", "1"}});
  for (const int step : {4, 5, 6}) {
    Opened session = open({{"a", "2"}}, true);
    kill_at(session, step);
    const ObjectId moved = *world_.references.head("main");
    world_.references.set("main", base);
    recover();
    EXPECT_EQ(row(session).state, State::committed) << "the reflog knows";
    EXPECT_EQ(row(session).commit, moved);
    EXPECT_EQ(world_.references.head("main"), base) << "and nobody undoes the rewind";
  }
}

// All or nothing, whichever step the process died after, and whether or not others committed before the recovery.
class CrashAt : public CommitOrder, public testing::WithParamInterface<int> {};

TEST_P(CrashAt, ARunIsCommittedFromTheIntentOnAndRolledBackBefore) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}, {"n", "2"}}, true);
  kill_at(session, GetParam());
  recover();
  const bool committed = GetParam() >= 3;
  EXPECT_EQ(row(session).state, committed ? State::committed : State::rolled_back);
  EXPECT_EQ(row(session).reason, committed ? Reason::success : Reason::host_lost);
  EXPECT_EQ(head_files(), committed ? (Files{{"a", "2"}, {"n", "2"}}) : (Files{{"a", "1"}}));
  expect_nothing_left(session);
  EXPECT_TRUE(recover().empty()) << "a second recovery finds nothing to do";
}

TEST_P(CrashAt, ARunIsCommittedOnTopOfWhatOthersCommitted) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}}, true);
  kill_at(session, GetParam());
  Files others = head_files();
  others["o"] = "9";
  world_.push("main", others);
  recover();
  const bool committed = GetParam() >= 3;
  EXPECT_EQ(row(session).state, committed ? State::committed : State::rolled_back);
  EXPECT_EQ(head_files(), (Files{{"a", committed ? "2" : "1"}, {"o", "9"}}));
  expect_nothing_left(session);
  EXPECT_TRUE(recover().empty());
}

TEST_P(CrashAt, ARunThatConflictsAfterwardsKeepsItsResult) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}}, true);
  kill_at(session, GetParam());
  const bool moved = GetParam() >= 4;
  world_.push("main", {{"a", "9"}});
  recover();
  EXPECT_EQ(head_files(), (Files{{"a", "9"}}));
  if (moved) {
    EXPECT_EQ(row(session).state, State::committed);
  } else if (GetParam() == 3) {
    EXPECT_EQ(row(session).state, State::commit_failed);
    EXPECT_EQ(row(session).conflicts, std::vector<std::string>{"a"});
    const auto kept = world_.references.result(session.record.id);
    ASSERT_TRUE(kept);
    EXPECT_EQ(support::files_of(world_.objects, tree_of_commit(world_.objects, kept)), (Files{{"a", "2"}}));
  } else {
    EXPECT_EQ(row(session).state, State::rolled_back);
  }
  expect_nothing_left(session);
}

TEST_P(CrashAt, ASessionCommittedByHandStaysOpenUntilTheIntentIsRecorded) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  kill_at(session, GetParam(), true);
  recover();
  EXPECT_EQ(row(session).state, GetParam() >= 3 ? State::committed : State::open);
  EXPECT_EQ(head_files(), (Files{{"a", GetParam() >= 3 ? "2" : "1"}}));
  EXPECT_EQ(world_.directories.list().size(), GetParam() >= 3 ? 0u : 1u);
}

TEST_P(CrashAt, ASessionCommittedByHandIsOpenAgainWhenOthersMovedTheBranchFirst) {
  world_.push("main", {{"a", "1"}});
  Opened session = open({{"a", "2"}});
  kill_at(session, GetParam(), true);
  Files others = head_files();
  others["o"] = "9";
  world_.push("main", others);
  recover();
  const bool moved = GetParam() >= 4;
  EXPECT_EQ(row(session).state, moved ? State::committed : State::open);
  EXPECT_EQ(head_files(), (Files{{"a", moved ? "2" : "1"}, {"o", "9"}}));
  EXPECT_EQ(world_.references.is_pinned(session.record.id), !moved);
}

INSTANTIATE_TEST_SUITE_P(EveryStep, CrashAt, testing::Range(1, 7));

}  // namespace
}  // namespace escrow::session
