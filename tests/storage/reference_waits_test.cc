// Changes of references that find a lock file of git's or of a killed process in their way: which of them wait, which
// do not, and for what. Each attempt at a lock file is a link(2), which the test sees; none of it is timed.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "storage/git/reference_lock.h"
#include "tests/storage/reference_fixture.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::ObjectId;
using support::SystemCall;
using support::WatchedSystemCalls;

// Acts before one of the attempts to take a lock file.
class Attempts {
 public:
  Attempts(std::string lock, int at, std::function<void()> act)
      : watched_([this, lock = std::move(lock), at, act = std::move(act)](const SystemCall& call) {
          if (call.name == "link" && call.path == lock && ++count_ == at) act();
          return 0;
        }) {}
  int count() const { return count_; }

 private:
  int count_ = 0;
  WatchedSystemCalls watched_;
};

// The process has the lock, and is killed.
void die_with_the_lock_of_main(const Commits& commits, const std::optional<std::string>& content) {
  const pid_t child = fork();
  if (child == 0) {
    const ReferenceLock lock(commits.repository.path, "refs/heads/main", content);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_TRUE(fs::exists(commits.repository.path + "/refs/heads/main.lock"));
}

TEST(GitReferences, ALockThatGitHoldsIsWaitedFor) {
  Commits commits;
  const ObjectId a = commits.make("a");
  const std::string lock = commits.repository.path + "/refs/heads/main.lock";
  std::ofstream(lock).flush();
  const Attempts attempts(lock, 3, [&] { EXPECT_TRUE(fs::remove(lock)); });
  EXPECT_TRUE(commits.references().compare_and_swap("main", std::nullopt, a, "waited"));
  EXPECT_EQ(attempts.count(), 3);
  EXPECT_EQ(commits.references().head("main"), a);
}

TEST(GitReferences, ALockOfAKilledProcessIsTakenAway) {
  Commits commits;
  const ObjectId a = commits.make("a"), b = commits.make("b", {a});
  ASSERT_TRUE(commits.references().compare_and_swap("main", std::nullopt, a, "first"));
  die_with_the_lock_of_main(commits, b.hex() + "\n");
  const WatchedSystemCalls calls(finds_no_lock("after a kill"));
  EXPECT_TRUE(commits.references().compare_and_swap("main", a, b, "second"));
  EXPECT_FALSE(fs::exists(commits.repository.path + "/refs/heads/main.lock"));
}

// Its inode may be the one that a lock file of git's gets next.
TEST(GitReferences, ALockOfGitsIsNotTakenForThatOfAKilledProcess) {
  Commits commits;
  const ObjectId a = commits.make("a"), b = commits.make("b", {a});
  ASSERT_TRUE(commits.references().compare_and_swap("main", std::nullopt, a, "first"));
  die_with_the_lock_of_main(commits, std::nullopt);
  const std::string lock = commits.repository.path + "/refs/heads/main.lock";
  ASSERT_TRUE(fs::remove(lock)) << "somebody does what the message says";
  std::ofstream(lock).flush();
  const Attempts attempts(lock, 3, [&] { EXPECT_TRUE(fs::remove(lock)) << "the lock of git's was taken away"; });
  EXPECT_TRUE(commits.references().compare_and_swap("main", a, b, "second"));
  EXPECT_EQ(attempts.count(), 3);
}

TEST(GitReferences, ALockOfOneBranchHoldsUpNoOther) {
  Commits commits;
  const ObjectId a = commits.make("a");
  const std::string lock = commits.repository.path + "/refs/heads/stale.lock";
  std::ofstream(lock).flush();
  bool is_other_done = false;
  const Attempts attempts(lock, 3, [&] {
    EXPECT_NO_THROW(is_other_done = commits.references().compare_and_swap("main", std::nullopt, a, "first"));
    fs::remove(lock);
  });
  EXPECT_TRUE(commits.references().compare_and_swap("stale", std::nullopt, a, "second"));
  EXPECT_TRUE(is_other_done) << "it waited for the other branch";
}

// Ten seconds for each, one after another, would be minutes for the last. Those who come after one that waited in vain
// try for 200 ms, which is at most 9 attempts with the pauses between them; ten seconds are a hundred.
TEST(GitReferences, ThoseWhoQueueBehindAStaleLockWaitTogether) {
  constexpr int kFew = 20;
  Commits commits;
  const ObjectId a = commits.make("a");
  const std::string lock = commits.repository.path + "/refs/heads/main.lock";
  std::ofstream(lock).flush();
  const auto attempts_in_vain = [&] {
    const Attempts attempts(lock, 0, [] {});
    EXPECT_EQ(error_of([&] { commits.references().compare_and_swap("main", std::nullopt, a, "never"); }).code(),
              Errc::busy);
    return attempts.count();
  };
  std::vector<int> counts(8);
  std::vector<std::thread> waiting;
  for (int& count : counts) waiting.emplace_back([&] { count = attempts_in_vain(); });
  for (std::thread& thread : waiting) thread.join();
  EXPECT_LE(std::ranges::count_if(counts, [](int count) { return count > kFew; }), 1) << "more than one waited for it";
  EXPECT_LE(attempts_in_vain(), kFew) << "who comes later waits as long as the first";
}

}  // namespace
}  // namespace escrow::storage
