// SIGKILL after each numbered step of a commit, on a real repository: a new process recovers, and the branch has the
// whole commit or nothing of it, nothing acknowledged is lost, and git finds the repository sound.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "session/base/error.h"
#include "session/transaction/session_manager.h"
#include "storage/repository/repository.h"
#include "tests/support/escrow_process.h"
#include "tests/support/temporary_directory.h"

namespace escrow::session {
namespace {

using test::shell;

class KillAfter final : public CommitObserver {
 public:
  explicit KillAfter(int step) : step_(step) {}
  void reached(CommitStep step) override {
    if (static_cast<int>(step) == step_) kill(getpid(), SIGKILL);
  }

 private:
  int step_;
};

class CommitSteps : public testing::TestWithParam<int> {
 protected:
  CommitSteps() {
    storage::Repository::init(repository_, "main");
    run_session([](Overlay& overlay) { put(overlay, "base", "base\n"); }, nullptr, false);
  }

  static void put(Overlay& overlay, const std::string& name, const std::string& text) {
    const auto found = overlay.lookup(kRootNode, name);
    const NodeId node = found ? found->node : overlay.make_node(kRootNode, name, S_IFREG | 0644, 0, {}).node;
    overlay.write(node, 0, std::as_bytes(std::span(text)), WriteOrigin::call);
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

  CommitOutcome run_session(const std::function<void(Overlay&)>& work, CommitObserver* observer, bool ephemeral) {
    Opened opened(repository_, observer);
    SessionOptions options;
    options.branch = "main";
    options.audit = {"user:test", "user:test", "sandbox", "", "", ""};
    options.ephemeral = ephemeral;
    const auto session = opened.manager.open(options, true);
    work(session->overlay());
    session->overlay().flush(true);
    session->gate().move_to(WriteGate::Position::sealed);
    CommitRequest request;
    request.by_hand = !ephemeral;
    request.who = "test";
    return session->commit(request);
  }

  // In a process of its own, which dies after `step`.
  void die_in_commit(int step, bool ephemeral) {
    const pid_t child = fork();
    if (child == 0) {
      KillAfter observer(step);
      run_session(
          [](Overlay& overlay) {
            put(overlay, "base", "changed\n");
            for (int i = 0; i < 20; ++i) put(overlay, "new" + std::to_string(i), "text\n");
          },
          &observer, ephemeral);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the commit never reached step " << step;
  }

  std::string git(const std::string& command) { return shell("git -C '" + repository_ + "' " + command); }

  // 0: the branch has nothing of the commit; 1: all of it.
  int landed() {
    const std::string names = git("ls-tree --name-only main | wc -l"), base = git("show main:base");
    if (names == "1" && base == "base") return 0;
    if (names == "21" && base == "changed") return 1;
    ADD_FAILURE() << "a partial commit: " << names << " files, base is " << base;
    return -1;
  }

  support::TemporaryDirectory directory_;
  const std::string repository_ = directory_.path() + "/data.git";
};

TEST_P(CommitSteps, AKillLeavesAllOrNothingAndTheSessionRecovers) {
  const int step = GetParam();
  die_in_commit(step, false);
  landed();
  Opened opened(repository_, nullptr);
  opened.manager.recover();
  const auto sessions = opened.manager.list();
  ASSERT_FALSE(sessions.empty());
  SessionRecord record = sessions.back().record;
  if (step < static_cast<int>(CommitStep::intent_recorded)) {
    EXPECT_EQ(record.state, State::open) << "nothing was promised yet, and nothing may be lost";
    EXPECT_EQ(landed(), 0);
    const auto session = opened.manager.attach(record.id);
    CommitRequest request;
    request.by_hand = true;
    request.who = "test";
    EXPECT_TRUE(std::holds_alternative<Committed>(session->commit(request)));
    record = session->record();
  }
  EXPECT_EQ(record.state, State::committed);
  EXPECT_EQ(landed(), 1);
  EXPECT_EQ(record.commit->hex(), git("rev-parse main"));
  EXPECT_EQ(git("rev-list --count main"), "2");
  EXPECT_TRUE(opened.repository->directories().list().empty()) << "what the session staged is removed";
  EXPECT_EQ(git("for-each-ref refs/escrow refs/sessions"), "");
  git("fsck --strict");
  EXPECT_TRUE(opened.manager.recover().empty()) << "recovery has nothing left to do";
}

TEST_P(CommitSteps, AKilledRunIsRolledBackOrCommittedAndLeavesNothing) {
  die_in_commit(GetParam(), true);
  Opened opened(repository_, nullptr);
  opened.manager.recover();
  const SessionRecord record = opened.manager.list().back().record;
  const bool promised = GetParam() >= static_cast<int>(CommitStep::intent_recorded);
  EXPECT_EQ(record.state, promised ? State::committed : State::rolled_back);
  EXPECT_EQ(landed(), promised ? 1 : 0);
  EXPECT_TRUE(opened.repository->directories().list().empty());
  EXPECT_EQ(git("for-each-ref refs/escrow refs/sessions"), "");
  git("fsck --strict");
}

TEST_P(CommitSteps, AGitPushBetweenTheKillAndTheRecoveryIsNotLost) {
  die_in_commit(GetParam(), false);
  const int before = landed();
  const std::string work = directory_.path() + "/work";
  shell("git clone -q '" + repository_ + "' '" + work + "' && cd '" + work +
        "' && echo pushed > pushed && git add pushed && git -c user.name=p -c user.email=p@p commit -qm pushed && "
        "git push -q origin HEAD:main");
  const std::string pushed = git("rev-parse main");
  Opened opened(repository_, nullptr);
  opened.manager.recover();
  const SessionRecord record = opened.manager.list().back().record;
  EXPECT_EQ(git("merge-base --is-ancestor " + pushed + " main && echo yes"), "yes") << "the push was lost";
  EXPECT_EQ(git("show main:pushed"), "pushed");
  if (before == 1) {
    EXPECT_EQ(record.state, State::committed);
  } else {
    EXPECT_EQ(record.state, State::open) << "the swap was lost to the push: nothing of the commit may be there";
    EXPECT_EQ(git("rev-parse main"), pushed);
  }
}

TEST_P(CommitSteps, AGcBetweenTheKillAndTheRecoveryTakesNothing) {
  const int step = GetParam();
  die_in_commit(step, false);
  git("repack -adq");
  git("prune --expire=now");
  git("gc --quiet --prune=now");
  git("config gc.pruneExpire now");
  shell(ESCROW_BINARY " --repo '" + repository_ + "' gc");  // recovers first, and then collects
  Opened opened(repository_, nullptr);
  opened.manager.recover();
  SessionRecord record = opened.manager.list().back().record;
  if (step < static_cast<int>(CommitStep::intent_recorded)) {
    ASSERT_EQ(record.state, State::open);
    const auto session = opened.manager.attach(record.id);
    CommitRequest request;
    request.by_hand = true;
    request.who = "test";
    EXPECT_TRUE(std::holds_alternative<Committed>(session->commit(request)));
    record = session->record();
  }
  EXPECT_EQ(record.state, State::committed) << "its objects were taken: " << record.last_error;
  EXPECT_EQ(landed(), 1);
  EXPECT_EQ(git("rev-list --count main"), "2");
  git("fsck --full --strict");
}

INSTANTIATE_TEST_SUITE_P(EveryStep, CommitSteps, testing::Range(1, 7));

}  // namespace
}  // namespace escrow::session
