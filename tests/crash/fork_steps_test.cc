// SIGKILL at each step of a fork's commit, on a real repository: a new process finds the session with all of the
// fork's changes or with none, and the fork committed or open.
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

class KillForkAfter final : public CommitObserver {
 public:
  explicit KillForkAfter(CommitStep step) : step_(step) {}
  void reached(CommitStep step) override {
    if (step == step_) kill(getpid(), SIGKILL);
  }

 private:
  CommitStep step_;
};

class ForkSteps : public testing::TestWithParam<CommitStep> {
 protected:
  ForkSteps() {
    storage::Repository::init(repository_, "main");
  }

  static void put(Session& session, const std::string& name, const std::string& text) {
    Overlay& overlay = session.overlay();
    const auto found = overlay.lookup(kRootNode, name);
    const NodeId node = found ? found->node : overlay.make_node(kRootNode, name, S_IFREG | 0644, 0, {}).node;
    overlay.write(node, 0, std::as_bytes(std::span(text)), WriteOrigin::call);
  }
  static std::string get(Session& session, const std::string& name) {
    const auto found = session.overlay().lookup(kRootNode, name);
    if (!found) return "(nothing)";
    std::string text(found->size_bytes, '\0');
    session.overlay().read(found->node, 0, std::as_writable_bytes(std::span(text)));
    return text;
  }

  // A process with both.
  class Opened final : public ParentSessions {
   public:
    Opened(const std::string& path, CommitObserver* observer)
        : repository(storage::Repository::open(path, log)), manager(services(observer)) {}
    Services services(CommitObserver* observer) {
      Services all{repository->objects(), repository->references(), repository->catalog(), repository->directories(),
                   clock, log, observer};
      all.parents = this;
      return all;
    }
    CommitOutcome land(const SessionId&, const SessionId& fork, const CommitRequest& request) override {
      return parent->land(fork, request);
    }
    std::unique_ptr<Session> fork() {
      SessionOptions options;
      options.audit = {"user:test", "user:test", "sandbox", "", "", ""};
      const SessionId id = SessionId::generate();
      return manager.fork(parent->id(), options, id, {}, [&] { parent->fork_into(id, [] {}); });
    }
    static CommitOutcome commit(Session& session) {
      const WriteGate::Pause pause(session.gate());
      return session.commit({.message = "", .exit_code = {}, .by_hand = true, .who = "test"});
    }
    NullLog log;
    SystemClock clock;
    std::unique_ptr<storage::Repository> repository;
    SessionManager manager;
    std::unique_ptr<Session> parent;
  };

  void die() {
    const pid_t child = ::fork();
    if (child == 0) {
      KillForkAfter observer(GetParam());
      Opened opened(repository_, &observer);
      SessionOptions options;
      options.branch = "main";
      options.audit = {"user:test", "user:test", "sandbox", "", "", ""};
      opened.parent = opened.manager.open(options, true);
      put(*opened.parent, "base", "before");
      put(*opened.parent, "large", std::string(200'000, 'l'));
      const auto fork = opened.fork();
      put(*fork, "base", "after!");
      put(*fork, "large", "changed");
      for (int number = 0; number < 20; ++number) put(*fork, "new" + std::to_string(number), "text");
      Opened::commit(*fork);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the step was never reached";
  }

  support::TemporaryDirectory directory_;
  const std::string repository_ = directory_.path() + "/data.git";
};

TEST_P(ForkSteps, AKillLeavesTheSessionWithAllOfTheForkOrWithNone) {
  die();
  Opened opened(repository_, nullptr);
  opened.manager.recover();
  SessionId parent = SessionId::generate(), fork = parent;
  for (const auto& listed : opened.manager.list()) (listed.record.parent ? fork : parent) = listed.record.id;
  opened.parent = opened.manager.attach(parent);
  const bool is_committed = opened.repository->catalog().find(fork)->state == State::committed;
  EXPECT_EQ(is_committed, GetParam() == CommitStep::outcome_recorded || GetParam() == CommitStep::cleaned_up);
  if (!is_committed) {
    EXPECT_EQ(get(*opened.parent, "base"), "before");
    EXPECT_EQ(get(*opened.parent, "large"), std::string(200'000, 'l'));
    EXPECT_EQ(get(*opened.parent, "new19"), "(nothing)");
    const auto again = opened.manager.attach(fork);
    EXPECT_EQ(get(*again, "base"), "after!");
    EXPECT_TRUE(std::holds_alternative<Landed>(Opened::commit(*again)));
  }
  EXPECT_EQ(get(*opened.parent, "base"), "after!");
  EXPECT_EQ(get(*opened.parent, "large").substr(0, 9), "changedll");
  EXPECT_EQ(get(*opened.parent, "new19"), "text");
  EXPECT_TRUE(std::holds_alternative<Committed>(Opened::commit(*opened.parent)));
  opened.parent.reset();
  opened.manager.recover();
  EXPECT_TRUE(opened.repository->directories().list().empty());
  EXPECT_TRUE(opened.repository->verify([](auto, auto) {}).empty());
}

INSTANTIATE_TEST_SUITE_P(EveryStep, ForkSteps,
                         testing::Values(CommitStep::landing_begun, CommitStep::landing_applied,
                                         CommitStep::outcome_recorded, CommitStep::cleaned_up));

}  // namespace
}  // namespace escrow::session
