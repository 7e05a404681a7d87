// The queue at a branch: between threads, between processes, and beside those that die or stop in it.
#include "storage/git/branch_turn.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <future>
#include <iterator>
#include <thread>
#include <tuple>

#include "session/base/synchronized.h"
#include "tests/session/eventually.h"
#include "tests/storage/git_test_repository.h"

namespace escrow::storage {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class BranchTurns : public testing::Test {
 protected:
  std::unique_ptr<BranchTurn> take(const std::string& branch = "main", std::chrono::milliseconds patience = 60s) {
    return std::make_unique<BranchTurn>(directory_.path(), branch, patience);
  }
  // How many bytes of the file of turns are locked.
  int tickets() const {
    const UniqueFd file(::open((directory_.path() + "/turns").c_str(), O_RDWR | O_CLOEXEC));
    std::vector<std::pair<off_t, off_t>> ranges{{0, 0}};  // a length of 0: to the end
    int count = 0;
    while (!ranges.empty()) {
      struct flock lock {};
      lock.l_type = F_WRLCK;
      lock.l_whence = SEEK_SET;
      std::tie(lock.l_start, lock.l_len) = ranges.back();
      const off_t begin = lock.l_start, end = lock.l_len == 0 ? 0 : begin + lock.l_len;
      ranges.pop_back();
      EXPECT_EQ(::fcntl(file.get(), F_OFD_GETLK, &lock), 0);
      if (lock.l_type == F_UNLCK) continue;
      ++count;
      const off_t behind = lock.l_start + lock.l_len;
      if (lock.l_start > begin) ranges.emplace_back(begin, lock.l_start - begin);
      if (end == 0 || behind < end) ranges.emplace_back(behind, end == 0 ? 0 : end - behind);
    }
    return count;
  }
  // A process that takes its turn, says so, and keeps it.
  pid_t keeper(const std::function<void()>& prepare = [] {}) {
    int pipe[2];
    EXPECT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      prepare();
      const auto turn = take();
      if (::write(pipe[1], "x", 1) == 1) ::pause();
      ::_exit(0);
    }
    char said = 0;
    EXPECT_EQ(::read(pipe[0], &said, 1), 1);
    ::close(pipe[0]);
    ::close(pipe[1]);
    return child;
  }
  static void end(pid_t child) {
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
  }

  const support::TemporaryDirectory directory_;
};

TEST_F(BranchTurns, WhoComesFirstIsServedFirst) {
  constexpr int kMany = 32;
  auto first = take();
  EXPECT_FALSE(first->is_wanted());
  session::Synchronized<std::vector<int>> served;
  std::vector<std::thread> threads;
  for (int number = 0; number < kMany; ++number) {
    threads.emplace_back([&, number] {
      const auto turn = take();
      served.lock()->push_back(number);
    });
    EXPECT_TRUE(support::eventually([&] { return tickets() == number + 2; }));
  }
  EXPECT_TRUE(first->is_wanted());
  first.reset();
  for (std::thread& thread : threads) thread.join();
  std::vector<int> expected(kMany);
  for (int number = 0; number < kMany; ++number) expected[static_cast<std::size_t>(number)] = number;
  EXPECT_EQ(*served.lock(), expected);
}

TEST_F(BranchTurns, BranchesDoNotWaitForOneAnother) {
  const auto main = take("main"), other = take("other");
  EXPECT_FALSE(main->is_wanted());
}

TEST_F(BranchTurns, AProcessThatIsKilledInTheQueueOrAtItsTurnHoldsNobodyUp) {
  const pid_t holder = keeper();
  const pid_t queued = ::fork();
  if (queued == 0) {
    take();
    ::_exit(0);
  }
  ASSERT_TRUE(support::eventually([&] { return tickets() == 2; }));
  auto next = std::async(std::launch::async, [&] { return take(); });
  EXPECT_TRUE(support::eventually([&] { return tickets() == 3; }));
  end(queued);
  EXPECT_EQ(next.wait_for(100ms), std::future_status::timeout);
  end(holder);
  ASSERT_EQ(next.wait_for(30s), std::future_status::ready);
  EXPECT_FALSE(next.get()->is_wanted());
}

// It is for fairness only: the branch itself is git's to lock.
TEST_F(BranchTurns, AProcessThatIsStoppedAtItsTurnIsNotWaitedForForEver) {
  const pid_t holder = keeper();
  ::kill(holder, SIGSTOP);
  const auto begin = Clock::now();
  take("main", 300ms);
  EXPECT_GE(Clock::now() - begin, 300ms);
  end(holder);
}

// From here on the kernel lets this process look at no lock.
void refuse_to_look_at_locks() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_OFD_GETLK, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOLCK),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    ::_exit(1);
}

// It had the door by then.
TEST_F(BranchTurns, WhoGetsNoTicketKeepsNobodyOut) {
  const pid_t holder = keeper(refuse_to_look_at_locks);
  EXPECT_EQ(tickets(), 0);
  end(holder);
}

TEST_F(BranchTurns, WhereNoneCanBeTakenNobodyWaitsOrFails) {
  const BranchTurn turn(directory_.path() + "/missing", "main", 60s);
  EXPECT_FALSE(turn.is_wanted());
}

}  // namespace
}  // namespace escrow::storage
