// A session that requires approval, from its seal to what a reviewer does with it: over a repository in memory.
#include "session/transaction/approval.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "session/base/error.h"
#include "session/transaction/commit.h"
#include "session/transaction/session_manager.h"
#include "session/trees/tree_walk.h"
#include "tests/session/fake_services.h"

namespace escrow::session {
namespace {

using support::Files;

// Not a std::exception: nothing of the core may run on the way out, as when the process is killed.
struct KilledReview {};

class StopReviewAt final : public CommitObserver {
 public:
  explicit StopReviewAt(CommitStep step) : step_(step) {}
  void reached(CommitStep step) override {
    if (step == step_) throw KilledReview();
  }

 private:
  const CommitStep step_;
};

class Approvals : public testing::Test {
 protected:
  SessionOptions options(bool ephemeral = true, std::int64_t expires_s = 0) {
    SessionOptions chosen;
    chosen.branch = "main";
    chosen.audit = {"user:alice", "user:bob", "sandbox", "", "", ""};
    chosen.ephemeral = ephemeral;
    chosen.require_approval = true;
    chosen.approval_expires_s = expires_s;
    return chosen;
  }

  static void put(Session& session, const std::string& name, const std::string& content) {
    FileSystem& files = session.file_system();
    auto found = files.lookup(kRootNode, name);
    if (!found) found = files.make_node(kRootNode, name, S_IFREG | 0644, 0, {});
    AttributeChange truncate;
    truncate.size_bytes = 0;
    files.change_attributes(found->node, truncate);
    files.write(found->node, 0, std::as_bytes(std::span(content)), WriteOrigin::call);
  }

  // A session that wrote `files`, committed; sealed unless an observer stops it on the way.
  SessionId seal(const Files& files, const SessionOptions& chosen, CommitObserver* observer = nullptr) {
    SessionManager manager(world_.services(observer));
    const auto session = manager.open(chosen, true);
    for (const auto& [name, content] : files) put(*session, name, content);
    session->overlay().flush(true);
    session->gate().move_to(WriteGate::Position::sealed);
    const SessionId id = session->id();
    const CommitRequest request{.message = "", .exit_code = 0, .reason = Reason::success,
                                .by_hand = !chosen.ephemeral, .who = "user:alice"};
    if (observer != nullptr) {
      EXPECT_THROW(session->commit(request), KilledReview);
    } else {
      sealed_ = session->commit(request);
    }
    return id;
  }
  SessionId seal(const Files& files) { return seal(files, options()); }

  CommitOutcome approve(const SessionId& id, const std::string& result = "", CommitObserver* observer = nullptr) {
    return SessionManager(world_.services(observer))
        .approve(id, {.review = {"user:carol", "looks right"}, .result = result, .message = ""});
  }
  Errc refusal(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      said_ = error.what();
      return error.code();
    }
    ADD_FAILURE() << "nothing was refused";
    return Errc::input_output;
  }

  SessionRecord row(const SessionId& id) { return *world_.catalog.find(id); }
  Files head_files() { return files_at(world_.references.head("main")); }
  Files files_at(const std::optional<ObjectId>& commit) {
    return commit ? support::files_of(world_.objects, tree_of_commit(world_.objects, commit)) : Files();
  }
  std::vector<std::string> recover() { return SessionManager(world_.services()).recover(); }
  void expect_nothing_left(const SessionId& id) {
    EXPECT_TRUE(world_.directories.list().empty());
    EXPECT_FALSE(world_.references.is_pinned(id));
    EXPECT_FALSE(world_.references.result(id));
  }
  // Sealed, durable and as it was: nothing of it is in the branch.
  void expect_waiting(const SessionId& id, const Files& files) {
    const SessionRecord now = row(id);
    EXPECT_EQ(now.state, State::awaiting_approval);
    EXPECT_EQ(now.reason, Reason::none);
    ASSERT_TRUE(now.result);
    EXPECT_EQ(world_.references.result(id), now.result);
    EXPECT_EQ(files_at(now.result), files);
    EXPECT_EQ(now.reviewer, "");
    EXPECT_EQ(now.review_comment, "");
    EXPECT_FALSE(now.swap_to);
    EXPECT_TRUE(world_.references.is_pinned(id));
    EXPECT_FALSE(world_.directories.is_held(id));
  }

  support::FakeWorld world_;
  CommitOutcome sealed_ = NothingToCommit{};
  std::string said_;
};

TEST_F(Approvals, ASuccessIsSealedAndNothingOfItIsInTheBranch) {
  const ObjectId base = world_.push("main", {{"a", "1"}});
  const SessionId id = seal({{"a", "2"}, {"n", "new"}});
  ASSERT_TRUE(std::holds_alternative<AwaitingApproval>(sealed_));
  EXPECT_EQ(std::get<AwaitingApproval>(sealed_).counts, (ChangeCounts{1, 1, 0}));
  EXPECT_EQ(std::get<AwaitingApproval>(sealed_).result, row(id).result);
  EXPECT_EQ(world_.references.head("main"), base);
  expect_waiting(id, {{"a", "2"}, {"n", "new"}});
  EXPECT_EQ(world_.objects.read_commit(*row(id).result).parents, std::vector<ObjectId>{base});
  EXPECT_EQ(row(id).counts, (ChangeCounts{1, 1, 0}));
  EXPECT_EQ(row(id).exit_code, 0);
  EXPECT_TRUE(recover().empty()) << "a run that waits is no orphan";
}

TEST_F(Approvals, NoChangeNeedsNoApproval) {
  world_.push("main", {{"a", "1"}});
  const SessionId id = seal({{"a", "1"}});
  EXPECT_TRUE(std::holds_alternative<NothingToCommit>(sealed_));
  EXPECT_EQ(row(id).state, State::committed);
  expect_nothing_left(id);
}

TEST_F(Approvals, AnApprovedResultIsTheCommitWithItsReviewer) {
  const ObjectId base = world_.push("main", {{"a", "1"}});
  const SessionId id = seal({{"a", "2"}});
  const auto outcome = approve(id);
  ASSERT_TRUE(std::holds_alternative<Committed>(outcome));
  const Commit head = world_.objects.read_commit(*world_.references.head("main"));
  EXPECT_EQ(head.parents, std::vector<ObjectId>{base});
  EXPECT_EQ(head.tree, world_.objects.read_commit(*row(id).result).tree);
  EXPECT_NE(head.message.find("Escrow-Reviewer: user:carol\nEscrow-Review-Comment: looks right\n"), std::string::npos)
      << head.message;
  EXPECT_EQ(head.author.name, "alice");
  EXPECT_EQ(row(id).state, State::committed);
  EXPECT_EQ(row(id).reason, Reason::success);
  EXPECT_EQ(row(id).reviewer, "user:carol");
  EXPECT_EQ(row(id).review_comment, "looks right");
  EXPECT_EQ(row(id).commit, std::get<Committed>(outcome).commit);
  expect_nothing_left(id);
}

TEST_F(Approvals, AResultIsApprovedByAPrefixOfItsIdAndByNoOther) {
  const ObjectId base = world_.push("main", {{"a", "1"}});
  const SessionId id = seal({{"a", "2"}});
  const std::string result = row(id).result->hex();
  std::string other = result;
  other[5] = other[5] == '0' ? '1' : '0';
  EXPECT_EQ(refusal([&] { approve(id, other); }), Errc::wrong_state);
  EXPECT_NE(said_.find(result), std::string::npos) << said_;
  EXPECT_EQ(refusal([&] { approve(id, base.hex()); }), Errc::wrong_state);
  for (const std::string& malformed : {result.substr(0, 6), std::string("HEAD"), result + "0", std::string("main~1xx")})
    EXPECT_TRUE(refusal([&] { approve(id, malformed); }) != Errc::input_output) << malformed;
  EXPECT_EQ(world_.references.head("main"), base);
  expect_waiting(id, {{"a", "2"}});
  EXPECT_TRUE(std::holds_alternative<Committed>(approve(id, result.substr(0, 7))));
}

TEST_F(Approvals, WhereOthersMovedTheBranchTheNewResultIsShownAgainAndMustBeNamed) {
  world_.push("main", {{"a", "1"}});
  const SessionId id = seal({{"a", "2"}});
  const std::string sealed = row(id).result->hex();
  const ObjectId theirs = world_.push("main", {{"a", "1"}, {"o", "9"}});
  const auto outcome = approve(id, sealed);
  ASSERT_TRUE(std::holds_alternative<AwaitingApproval>(outcome));
  const ObjectId shown = std::get<AwaitingApproval>(outcome).result;
  EXPECT_NE(shown.hex(), sealed);
  EXPECT_EQ(world_.references.head("main"), theirs) << "nothing was committed";
  expect_waiting(id, {{"a", "2"}, {"o", "9"}});
  const SessionResult result = sealed_result(world_.objects, row(id));
  EXPECT_EQ(result.base, theirs) << "the diff is against the new head";
  EXPECT_EQ(refusal([&] { approve(id); }), Errc::wrong_state) << "who looked at the first one would approve another";
  EXPECT_NE(said_.find(shown.hex()), std::string::npos) << said_;
  EXPECT_EQ(refusal([&] { approve(id, sealed); }), Errc::wrong_state);
  ASSERT_TRUE(std::holds_alternative<Committed>(approve(id, shown.hex())));
  EXPECT_EQ(head_files(), (Files{{"a", "2"}, {"o", "9"}}));
  expect_nothing_left(id);
}

TEST_F(Approvals, ABranchThatMovesAgainIsShownAgain) {
  world_.push("main", {{"a", "1"}});
  const SessionId id = seal({{"a", "2"}});
  world_.push("main", {{"a", "1"}, {"o", "9"}});
  const ObjectId second = std::get<AwaitingApproval>(approve(id)).result;
  world_.push("main", {{"a", "1"}, {"o", "9"}, {"p", "9"}});
  const auto outcome = approve(id, second.hex());
  ASSERT_TRUE(std::holds_alternative<AwaitingApproval>(outcome));
  expect_waiting(id, {{"a", "2"}, {"o", "9"}, {"p", "9"}});
  EXPECT_TRUE(std::holds_alternative<Committed>(approve(id, std::get<AwaitingApproval>(outcome).result.hex())));
  EXPECT_EQ(head_files(), (Files{{"a", "2"}, {"o", "9"}, {"p", "9"}}));
}

TEST_F(Approvals, ASwapThatIsLostShowsTheResultAgainInsteadOfCommittingAnother) {
  world_.push("main", {{"a", "1"}});
  const SessionId id = seal({{"a", "2"}});
  bool pushed = false;
  world_.references.before_swap = [&] {
    if (!std::exchange(pushed, true)) world_.push("main", {{"a", "1"}, {"o", "9"}});
  };
  ASSERT_TRUE(std::holds_alternative<AwaitingApproval>(approve(id)));
  EXPECT_EQ(head_files(), (Files{{"a", "1"}, {"o", "9"}}));
  expect_waiting(id, {{"a", "2"}, {"o", "9"}});
}

TEST_F(Approvals, AConflictNamesThePathsAndTheSessionGoesOnWaiting) {
  world_.push("main", {{"a", "1"}, {"b", "1"}});
  const SessionId id = seal({{"a", "2"}, {"b", "1"}});
  const std::optional<ObjectId> sealed = row(id).result;
  const ObjectId theirs = world_.push("main", {{"a", "9"}, {"b", "1"}});
  const auto outcome = approve(id);
  ASSERT_TRUE(std::holds_alternative<Conflicts>(outcome));
  ASSERT_EQ(std::get<Conflicts>(outcome).paths.size(), 1u);
  EXPECT_EQ(std::get<Conflicts>(outcome).paths[0].path, "a");
  EXPECT_EQ(world_.references.head("main"), theirs);
  expect_waiting(id, {{"a", "2"}, {"b", "1"}});
  EXPECT_EQ(row(id).result, sealed);
}

TEST_F(Approvals, WhatOthersCommittedAlreadyEndsTheSessionWithoutACommit) {
  world_.push("main", {{"a", "1"}});
  const SessionId id = seal({{"a", "2"}});
  const ObjectId theirs = world_.push("main", {{"a", "2"}, {"o", "9"}});
  EXPECT_TRUE(std::holds_alternative<NothingToCommit>(approve(id)));
  EXPECT_EQ(world_.references.head("main"), theirs);
  EXPECT_EQ(row(id).state, State::committed);
  EXPECT_EQ(row(id).reason, Reason::no_changes);
  EXPECT_EQ(row(id).reviewer, "user:carol");
  expect_nothing_left(id);
}

TEST_F(Approvals, ARejectedSessionIsRolledBackWithItsReviewer) {
  const ObjectId base = world_.push("main", {{"a", "1"}});
  const SessionId id = seal({{"a", "2"}});
  SessionManager(world_.services()).reject(id, {"user:carol", "wrong model"}, Reason::rejected);
  EXPECT_EQ(row(id).state, State::rolled_back);
  EXPECT_EQ(row(id).reason, Reason::rejected);
  EXPECT_EQ(row(id).reviewer, "user:carol");
  EXPECT_EQ(row(id).review_comment, "wrong model");
  EXPECT_EQ(row(id).exit_code, 0) << "what the command did is not rewritten";
  EXPECT_EQ(world_.references.head("main"), base);
  expect_nothing_left(id);
}

TEST_F(Approvals, AResultThatNobodyApprovedInTimeIsRolledBackByWhoeverComesNext) {
  world_.push("main", {{"a", "1"}});
  const SessionId first = seal({{"a", "2"}}, options(true, 3600));
  const SessionId second = seal({{"a", "3"}}, options(true, 3600));
  const SessionId never = seal({{"a", "4"}});
  ASSERT_TRUE(row(first).expires);
  EXPECT_EQ(row(first).expires->seconds, world_.clock.now().seconds + 3600);
  world_.clock.advance_s(3599);
  EXPECT_TRUE(recover().empty());
  world_.clock.advance_s(1);
  EXPECT_EQ(refusal([&] { approve(first); }), Errc::wrong_state) << "also without a recovery before";
  EXPECT_EQ(row(first).state, State::rolled_back);
  EXPECT_EQ(row(first).reason, Reason::expired);
  EXPECT_EQ(recover().size(), 1u);
  EXPECT_EQ(row(second).reason, Reason::expired);
  EXPECT_EQ(row(never).state, State::awaiting_approval);
  EXPECT_EQ(head_files(), (Files{{"a", "1"}}));
  EXPECT_FALSE(world_.references.result(first));
  EXPECT_FALSE(world_.references.result(second));
  EXPECT_EQ(world_.directories.list().size(), 1u);
}

TEST_F(Approvals, OnlyASessionThatWaitsIsReviewed) {
  world_.push("main", {{"a", "1"}});
  const SessionId id = seal({{"a", "2"}});
  approve(id);
  EXPECT_EQ(refusal([&] { approve(id); }), Errc::wrong_state);
  EXPECT_EQ(refusal([&] {
              SessionManager(world_.services()).reject(id, {"user:carol", ""}, Reason::rejected);
            }),
            Errc::wrong_state);
  EXPECT_EQ(refusal([&] { approve(SessionId::generate()); }), Errc::no_session);
  EXPECT_EQ(row(id).state, State::committed);
}

TEST_F(Approvals, AReviewerIsAPrincipalAndACommentIsOneLine) {
  world_.push("main", {{"a", "1"}});
  const SessionId id = seal({{"a", "2"}});
  SessionManager manager(world_.services());
  for (const Review& review : {Review{"carol", ""}, Review{"user:", ""}, Review{"user:carol", "two\nlines"},
                               Review{"user:carol", "\x1b[31m"}, Review{"user:carol", std::string(2000, 'x')}}) {
    EXPECT_EQ(refusal([&] { manager.approve(id, {.review = review, .result = "", .message = ""}); }),
              Errc::bad_request);
    EXPECT_EQ(refusal([&] { manager.reject(id, review, Reason::rejected); }), Errc::bad_request);
  }
  expect_waiting(id, {{"a", "2"}});
}

TEST_F(Approvals, ASealedSessionCannotBeOpenedAgain) {
  world_.push("main", {{"a", "1"}});
  const SessionId id = seal({{"a", "2"}}, options(false));
  SessionManager manager(world_.services());
  EXPECT_EQ(refusal([&] { manager.attach(id); }), Errc::wrong_state);
  EXPECT_NE(said_.find("awaits approval"), std::string::npos) << said_;
  EXPECT_EQ(manager.status(id).attachment, Attachment::none);
  expect_waiting(id, {{"a", "2"}});
}

TEST_F(Approvals, ARuleOfTheBranchCountsForASessionThatDidNotAsk) {
  world_.push("main", {{"a", "1"}});
  SessionOptions chosen = options(true, 7200);
  chosen.require_approval = false;
  world_.references.set_rule("main", {.require_approval = true, .approval_expires_s = 3600});
  const SessionId id = seal({{"a", "2"}}, chosen);
  EXPECT_EQ(row(id).state, State::awaiting_approval);
  EXPECT_TRUE(row(id).options.require_approval);
  EXPECT_EQ(row(id).expires->seconds, world_.clock.now().seconds + 3600) << "the shorter of the two";
}

TEST_F(Approvals, ARuleThatComesWhileASessionIsOpenCountsToo) {
  world_.push("main", {{"a", "1"}});
  SessionOptions chosen = options();
  chosen.require_approval = false;
  SessionManager manager(world_.services());
  const auto session = manager.open(chosen, true);
  put(*session, "a", "2");
  world_.references.set_rule("main", {.require_approval = true, .approval_expires_s = 0});
  const CommitRequest request{.message = "", .exit_code = 0, .reason = Reason::success, .by_hand = false, .who = "x"};
  EXPECT_TRUE(std::holds_alternative<AwaitingApproval>(session->commit(request)));
}

TEST_F(Approvals, TheFirstOfTwoReviewersDecides) {
  world_.push("main", {{"a", "1"}});
  for (int round = 0; round < 20; ++round) {
    const std::string content = "round " + std::to_string(round);
    const SessionId id = seal({{"a", content}});
    std::atomic<int> approved = 0, refused = 0, rejected = 0;
    std::vector<std::thread> reviewers;
    for (int i = 0; i < 4; ++i)
      reviewers.emplace_back([&, i] {
        try {
          if (i == 3) {
            SessionManager(world_.services()).reject(id, {"user:dave", ""}, Reason::rejected);
            ++rejected;
          } else if (std::holds_alternative<Committed>(approve(id))) {
            ++approved;
          }
        } catch (const Error& error) {
          EXPECT_TRUE(error.code() == Errc::wrong_state || error.code() == Errc::attached_elsewhere) << error.what();
          ++refused;
        }
      });
    for (std::thread& reviewer : reviewers) reviewer.join();
    EXPECT_EQ(approved + rejected, 1);
    EXPECT_EQ(refused, 3);
    EXPECT_EQ(row(id).state, approved == 1 ? State::committed : State::rolled_back);
    EXPECT_EQ(head_files().at("a") == content, approved == 1);
    expect_nothing_left(id);
  }
}

TEST_F(Approvals, AFailureWhileApprovingLeavesTheSessionWaitingWithTheReason) {
  const ObjectId base = world_.push("main", {{"a", "1"}});
  const SessionId id = seal({{"a", "2"}});
  world_.references.before_swap = [] { throw Error(Errc::no_space, "no space for the reference"); };
  EXPECT_EQ(refusal([&] { approve(id); }), Errc::no_space);
  EXPECT_EQ(world_.references.head("main"), base);
  expect_waiting(id, {{"a", "2"}});
  EXPECT_EQ(row(id).last_error, "no space for the reference");
  world_.references.before_swap = nullptr;
  EXPECT_TRUE(std::holds_alternative<Committed>(approve(id)));
}

TEST_F(Approvals, AFailureWhileSealingLeavesTheSessionOpenWithTheReason) {
  world_.push("main", {{"a", "1"}});
  SessionManager manager(world_.services());
  const auto session = manager.open(options(), true);
  put(*session, "a", "2");
  world_.catalog.before_transition = [](const SessionRecord& next) {
    if (next.state == State::awaiting_approval) throw Error(Errc::no_space, "disk full");
  };
  const CommitRequest request{.message = "", .exit_code = 0, .reason = Reason::success, .by_hand = false, .who = "x"};
  EXPECT_EQ(refusal([&] { session->commit(request); }), Errc::no_space);
  EXPECT_EQ(row(session->id()).state, State::open);
  EXPECT_EQ(row(session->id()).last_error, "disk full");
  world_.catalog.before_transition = nullptr;
  EXPECT_TRUE(std::holds_alternative<AwaitingApproval>(session->commit(request)));
}

// All or nothing, whichever step the process died after.
class KilledSeal : public Approvals, public testing::WithParamInterface<CommitStep> {};

TEST_P(KilledSeal, ARunIsSealedFromTheRecordOnAndRolledBackBefore) {
  const ObjectId base = world_.push("main", {{"a", "1"}});
  StopReviewAt stop(GetParam());
  const SessionId id = seal({{"a", "2"}}, options(), &stop);
  recover();
  EXPECT_EQ(world_.references.head("main"), base);
  if (GetParam() == CommitStep::approval_awaited || GetParam() == CommitStep::cleaned_up) {
    expect_waiting(id, {{"a", "2"}});
    EXPECT_TRUE(recover().empty()) << "a second recovery finds nothing to do";
    EXPECT_TRUE(std::holds_alternative<Committed>(approve(id)));
    EXPECT_EQ(head_files(), (Files{{"a", "2"}}));
  } else {
    EXPECT_EQ(row(id).state, State::rolled_back);
    EXPECT_EQ(row(id).reason, Reason::host_lost);
    EXPECT_TRUE(recover().empty());
  }
  expect_nothing_left(id);
}

TEST_P(KilledSeal, ASessionByHandIsOpenUntilItIsRecordedAsSealed) {
  world_.push("main", {{"a", "1"}});
  StopReviewAt stop(GetParam());
  const SessionId id = seal({{"a", "2"}}, options(false), &stop);
  recover();
  if (GetParam() == CommitStep::approval_awaited || GetParam() == CommitStep::cleaned_up)
    return expect_waiting(id, {{"a", "2"}});
  EXPECT_EQ(row(id).state, State::open);
  SessionManager manager(world_.services());
  const auto session = manager.attach(id);
  session->overlay().flush(true);
  const CommitRequest request{.message = "", .exit_code = {}, .reason = Reason::success, .by_hand = true, .who = "x"};
  EXPECT_TRUE(std::holds_alternative<AwaitingApproval>(session->commit(request)));
}

INSTANTIATE_TEST_SUITE_P(EveryStep, KilledSeal,
                         testing::Values(CommitStep::sealed_tree_built, CommitStep::objects_durable,
                                         CommitStep::result_referenced, CommitStep::approval_awaited,
                                         CommitStep::cleaned_up));

class KilledApproval : public Approvals, public testing::WithParamInterface<CommitStep> {
 protected:
  bool promised() const { return GetParam() >= CommitStep::intent_recorded; }
  SessionId sealed_and_killed() {
    world_.push("main", {{"a", "1"}});
    const SessionId id = seal({{"a", "2"}});
    StopReviewAt stop(GetParam());
    EXPECT_THROW(approve(id, "", &stop), KilledReview);
    return id;
  }
};

TEST_P(KilledApproval, IsCommittedFromTheIntentOnAndWaitsBefore) {
  const SessionId id = sealed_and_killed();
  recover();
  if (promised()) {
    EXPECT_EQ(row(id).state, State::committed);
    EXPECT_EQ(row(id).reviewer, "user:carol");
    EXPECT_EQ(head_files(), (Files{{"a", "2"}}));
  } else {
    expect_waiting(id, {{"a", "2"}});
    EXPECT_TRUE(recover().empty());
    EXPECT_TRUE(std::holds_alternative<Committed>(approve(id)));
  }
  expect_nothing_left(id);
  EXPECT_TRUE(recover().empty());
}

TEST_P(KilledApproval, NothingElseIsCommittedWhenOthersMovedTheBranchFirst) {
  const SessionId id = sealed_and_killed();
  const bool moved = GetParam() >= CommitStep::branch_moved;
  Files others = head_files();
  others["o"] = "9";
  const ObjectId theirs = world_.push("main", others);
  recover();
  EXPECT_EQ(world_.references.head("main"), theirs);
  if (moved) {
    EXPECT_EQ(row(id).state, State::committed);
    expect_nothing_left(id);
  } else {
    expect_waiting(id, {{"a", "2"}});
  }
}

TEST_P(KilledApproval, OfAResultThatWasReconciledItIsTheSame) {
  world_.push("main", {{"a", "1"}});
  const SessionId id = seal({{"a", "2"}});
  world_.push("main", {{"a", "1"}, {"o", "9"}});
  const std::string shown = std::get<AwaitingApproval>(approve(id)).result.hex();
  StopReviewAt stop(GetParam());
  EXPECT_THROW(approve(id, shown, &stop), KilledReview);
  recover();
  if (!promised()) {
    expect_waiting(id, {{"a", "2"}, {"o", "9"}});
    EXPECT_EQ(row(id).result->hex(), shown);
    approve(id, shown);
  }
  EXPECT_EQ(row(id).state, State::committed);
  EXPECT_EQ(head_files(), (Files{{"a", "2"}, {"o", "9"}}));
  expect_nothing_left(id);
}

INSTANTIATE_TEST_SUITE_P(EveryStep, KilledApproval,
                         testing::Values(CommitStep::sealed_tree_built, CommitStep::objects_durable,
                                         CommitStep::intent_recorded, CommitStep::branch_moved,
                                         CommitStep::outcome_recorded, CommitStep::cleaned_up));

}  // namespace
}  // namespace escrow::session
