// SIGKILL after each numbered step of a seal and of an approval, on a real repository: a new process recovers, and the
// result waits whole or nothing of it is there, the branch has the approved commit or not, and git finds all sound.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "session/base/error.h"
#include "session/transaction/session_manager.h"
#include "storage/repository/repository.h"
#include "tests/support/escrow_process.h"
#include "tests/support/temporary_directory.h"

namespace escrow::session {
namespace {

namespace fs = std::filesystem;
using test::shell;

class KillApprovalAfter final : public CommitObserver {
 public:
  explicit KillApprovalAfter(CommitStep step) : step_(step) {}
  void reached(CommitStep step) override {
    if (step == step_) kill(getpid(), SIGKILL);
  }

 private:
  CommitStep step_;
};

class ApprovalSteps : public testing::TestWithParam<CommitStep> {
 protected:
  ApprovalSteps() {
    storage::Repository::init(repository_, "main");
    run_session(false, nullptr);
    objects_ = objects();
  }

  struct Opened {
    Opened(const std::string& path, CommitObserver* observer)
        : repository(storage::Repository::open(path, log)),
          manager(Services{repository->objects(), repository->references(), repository->catalog(),
                           repository->directories(), clock, log, observer}) {}
    NullLog log;
    SystemClock clock;
    std::unique_ptr<storage::Repository> repository;
    SessionManager manager;
  };

  void run_session(bool require_approval, CommitObserver* observer) {
    Opened opened(repository_, observer);
    SessionOptions options;
    options.branch = "main";
    options.audit = {"user:test", "user:test", "sandbox", "", "", ""};
    options.ephemeral = true;
    options.require_approval = require_approval;
    const auto session = opened.manager.open(options, true);
    const int files = require_approval ? 20 : 1;
    for (int i = 0; i < files; ++i) {
      const NodeId node = session->overlay()
                              .make_node(kRootNode, (require_approval ? "new" : "base") + std::to_string(i),
                                         S_IFREG | 0644, 0, {})
                              .node;
      const std::string text = (require_approval ? "new text " : "base text ") + std::to_string(i) + "\n";
      session->overlay().write(node, 0, std::as_bytes(std::span(text)), WriteOrigin::call);
    }
    session->overlay().flush(true);
    session->gate().move_to(WriteGate::Position::sealed);
    CommitRequest request;
    request.who = "test";
    session->commit(request);
  }

  // In a process of its own, which dies on the way.
  template <typename Work>
  void dies(Work work) {
    const pid_t child = fork();
    if (child == 0) {
      work();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it never reached step " << static_cast<int>(GetParam());
  }

  CommitOutcome approve(const SessionId& id, CommitObserver* observer) {
    Opened opened(repository_, observer);
    return opened.manager.approve(id, {.review = {"user:reviewer", ""}, .result = "", .message = ""});
  }

  // The one session that is not the first import.
  SessionRecord recovered() {
    Opened opened(repository_, nullptr);
    opened.manager.recover();
    EXPECT_TRUE(opened.manager.recover().empty()) << "a second recovery has nothing left to do";
    return opened.manager.list().back().record;
  }

  std::string git(const std::string& command) { return shell("git -C '" + repository_ + "' " + command); }
  std::string objects() { return git("cat-file --batch-all-objects --batch-check='%(objectname)'"); }
  // What was published for nothing is garbage: nothing holds it, and no .keep file protects it.
  void expect_only_garbage_came() {
    git("gc --quiet --prune=now");
    EXPECT_EQ(objects(), objects_);
  }
  // 0: the commit has none of the session's files; 1: all.
  int has_all(const std::string& commit) {
    const std::string names = git("ls-tree --name-only " + commit + " | grep -c ^new || true");
    if (names == "0" || names == "20") return names == "20";
    ADD_FAILURE() << "a partial result: " << names << " files";
    return -1;
  }
  void expect_nothing_left() {
    EXPECT_EQ(git("for-each-ref refs/escrow refs/sessions"), "");
    EXPECT_EQ(shell("ls '" + repository_ + "/escrow/sessions'"), "");
    git("fsck --strict");
  }

  support::TemporaryDirectory directory_;
  const std::string repository_ = directory_.path() + "/data.git";
  std::string objects_;
};

class SealSteps : public ApprovalSteps {};

TEST_P(SealSteps, AKilledRunWaitsWholeOrLeavesNothing) {
  dies([this] {
    KillApprovalAfter observer(GetParam());
    run_session(true, &observer);
  });
  const SessionRecord record = recovered();
  EXPECT_EQ(has_all("main"), 0);
  if (GetParam() == CommitStep::approval_awaited || GetParam() == CommitStep::cleaned_up) {
    EXPECT_EQ(record.state, State::awaiting_approval);
    EXPECT_EQ(git("rev-parse refs/sessions/" + record.id.text()), record.result->hex());
    EXPECT_EQ(has_all(record.result->hex()), 1);
    EXPECT_FALSE(fs::exists(repository_ + "/escrow/sessions/" + record.id.text() + "/session.db"));
    git("gc -q --prune=now");
    EXPECT_TRUE(std::holds_alternative<Committed>(approve(record.id, nullptr)));
    EXPECT_EQ(has_all("main"), 1);
  } else {
    EXPECT_EQ(record.state, State::rolled_back);
    expect_only_garbage_came();
  }
  expect_nothing_left();
}

INSTANTIATE_TEST_SUITE_P(EveryStep, SealSteps,
                         testing::Values(CommitStep::sealed_tree_built, CommitStep::objects_durable,
                                         CommitStep::result_referenced, CommitStep::approval_awaited,
                                         CommitStep::cleaned_up));

TEST_P(ApprovalSteps, AKilledApprovalIsCommittedOrWaitsAgain) {
  run_session(true, nullptr);
  const SessionRecord sealed = recovered();
  dies([this, &sealed] {
    KillApprovalAfter observer(GetParam());
    approve(sealed.id, &observer);
  });
  SessionRecord record = recovered();
  if (GetParam() < CommitStep::intent_recorded) {
    EXPECT_EQ(record.state, State::awaiting_approval);
    EXPECT_EQ(record.result, sealed.result);
    EXPECT_EQ(has_all("main"), 0);
    git("gc -q --prune=now");
    approve(sealed.id, nullptr);
    record = recovered();
  }
  EXPECT_EQ(record.state, State::committed);
  EXPECT_EQ(record.reviewer, "user:reviewer");
  EXPECT_EQ(git("rev-parse main"), record.commit->hex());
  EXPECT_EQ(git("rev-parse main^{tree}"), git("rev-parse " + sealed.result->hex() + "^{tree}"));
  EXPECT_EQ(git("rev-list --count main"), "2");
  expect_nothing_left();
}

TEST_P(ApprovalSteps, AKilledApprovalCanStillBeRejectedBeforeItWasPromised) {
  if (GetParam() >= CommitStep::intent_recorded) return;
  run_session(true, nullptr);
  const SessionRecord sealed = recovered();
  dies([this, &sealed] {
    KillApprovalAfter observer(GetParam());
    approve(sealed.id, &observer);
  });
  Opened(repository_, nullptr).manager.reject(sealed.id, {"user:reviewer", "no"}, Reason::rejected);
  EXPECT_EQ(recovered().reason, Reason::rejected);
  expect_only_garbage_came();
  expect_nothing_left();
}

INSTANTIATE_TEST_SUITE_P(EveryStep, ApprovalSteps,
                         testing::Values(CommitStep::sealed_tree_built, CommitStep::objects_durable,
                                         CommitStep::intent_recorded, CommitStep::branch_moved,
                                         CommitStep::outcome_recorded, CommitStep::cleaned_up));

}  // namespace
}  // namespace escrow::session
