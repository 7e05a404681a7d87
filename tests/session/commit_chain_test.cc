// Commits on their way to one branch: in which order they land, which swaps they share, and what one that breaks takes
// with it.
#include "session/transaction/commit_chain.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "session/base/error.h"
#include "tests/support/fake_object_store.h"

namespace escrow::session {
namespace {

using Moves = std::vector<ReferenceStore::Move>;

ObjectId commit_number(int number) {
  std::string hex(40, '0');
  hex[39] = static_cast<char>('0' + number);
  return *ObjectId::from_hex(hex);
}

class CommitChain : public testing::Test {
 protected:
  std::unique_ptr<CommitChains::Link> make(int number) {
    auto link = join("main", false);
    link->made(commit_number(number), quarantine_, std::to_string(number));
    return link;
  }
  std::unique_ptr<CommitChains::Link> join(const std::string& branch, bool alone) {
    return chains_.join(branch, alone, [this] {
      ++taken_;
      ++held_;
      return std::make_unique<TestTurn>(*this);
    });
  }
  class TestTurn final : public ReferenceStore::Turn {
   public:
    explicit TestTurn(CommitChain& test) : test_(test) {}
    ~TestTurn() override { --test_.held_; }
    bool is_wanted() const override { return test_.is_wanted_; }

   private:
    CommitChain& test_;
  };
  // Lands on a thread of its own.
  static std::future<bool> land(CommitChains::Link& link, CommitChains::Link::Swap swap) {
    return std::async(std::launch::async, [&link, swap] { return link.published() && link.land(swap); });
  }
  // The same, once it waits for those before it: in a swap of theirs there is nothing else that it could wait for.
  static std::future<bool> land_behind(CommitChains::Link& link, CommitChains::Link::Swap swap) {
    std::promise<pid_t> thread;
    std::future<pid_t> number = thread.get_future();
    auto landed = std::async(std::launch::async, [&link, swap, &thread] {
      const bool is_published = link.published();
      thread.set_value(::gettid());
      return is_published && link.land(swap);
    });
    const std::string status = "/proc/self/task/" + std::to_string(number.get()) + "/stat";
    const auto sleeps = [&] {
      std::string line;
      std::getline(std::ifstream(status), line);
      return line.find(") S ") != std::string::npos;
    };
    bool waits = sleeps();
    for (int tries = 0; tries < 6000 && !waits; ++tries, waits = sleeps())
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(waits);
    return landed;
  }
  static bool is_ready(const std::future<bool>& future, int wait_ms = 50) {
    return future.wait_for(std::chrono::milliseconds(wait_ms)) == std::future_status::ready;
  }

  support::FakeObjectStore store_;
  support::FakeQuarantine quarantine_{store_};
  std::atomic<int> taken_ = 0, held_ = 0;  // turns of this process at any branch
  std::atomic<bool> is_wanted_ = false;     // by other processes
  CommitChains chains_;
};

TEST_F(CommitChain, EachIsMadeOnTheOneBeforeAndThoseThatAreReadyLandInOneSwap) {
  auto first = make(1), second = make(2), third = make(3);
  EXPECT_EQ(first->before(), std::nullopt);
  EXPECT_EQ(second->before(), commit_number(1));
  EXPECT_EQ(third->before(), commit_number(2));
  EXPECT_EQ(third->unlanded().size(), 2u);
  std::promise<void> begun, go;
  std::vector<std::size_t> swaps;
  const auto slow = [&](const Moves& moves) {
    swaps.push_back(moves.size());
    if (swaps.size() > 1) return true;
    begun.set_value();
    go.get_future().wait();
    return true;
  };
  std::future<bool> one = land(*first, slow);
  begun.get_future().wait();
  std::future<bool> two = land_behind(*second, slow), three = land_behind(*third, slow);
  EXPECT_FALSE(is_ready(two));
  go.set_value();
  EXPECT_TRUE(one.get() && two.get() && three.get());
  EXPECT_EQ(swaps, (std::vector<std::size_t>{1, 2}));
}

TEST_F(CommitChain, NoneLandsBeforeTheObjectsOfThoseBeforeItAreOnDisk) {
  auto first = make(1), second = make(2);
  const auto swap = [](const Moves&) { return true; };
  // An intent follows, and recovery merges what it names: all of that has to be on disk.
  std::future<bool> published = std::async(std::launch::async, [&] { return second->published(); });
  EXPECT_FALSE(is_ready(published));
  EXPECT_TRUE(first->published());
  EXPECT_TRUE(published.get());
  std::future<bool> two = std::async(std::launch::async, [&] { return second->land(swap); });
  EXPECT_FALSE(is_ready(two));
  EXPECT_TRUE(first->land(swap));
  EXPECT_TRUE(two.get());
}

TEST_F(CommitChain, OneThatGoesWithoutLandingBreaksThoseBehindItAndNotThoseBefore) {
  auto first = make(1), second = make(2), third = make(3);
  const auto swap = [](const Moves&) { return true; };
  std::future<bool> three = land(*third, swap);
  EXPECT_FALSE(is_ready(three));
  second.reset();
  EXPECT_FALSE(three.get());
  third.reset();
  auto fourth = make(4);
  EXPECT_EQ(fourth->before(), commit_number(1));
  EXPECT_TRUE(land(*first, swap).get());
  EXPECT_TRUE(land(*fourth, swap).get());
}

TEST_F(CommitChain, ASwapThatOthersWonBreaksAllAndTheNextIsMadeOnTheBranchItself) {
  auto first = make(1), second = make(2);
  const auto lost = [](const Moves&) { return false; };
  std::future<bool> two = land(*second, lost);
  EXPECT_FALSE(land(*first, lost).get());
  EXPECT_FALSE(two.get());
  EXPECT_EQ(make(3)->before(), std::nullopt);
}

TEST_F(CommitChain, ASwapThatFailsIsToldToAllItWasFor) {
  auto first = make(1), second = make(2);
  const auto fail = [](const Moves&) -> bool { throw Error(Errc::no_space, "the disk is full"); };
  std::future<bool> two = land(*second, fail), one = land(*first, fail);
  EXPECT_THROW(one.get(), Error);
  // Ready by then or not: it lands nowhere.
  try {
    EXPECT_FALSE(two.get());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::no_space);
  }
}

TEST_F(CommitChain, OneThatIsAloneWaitsForAllAndKeepsNewOnesAway) {
  auto first = make(1);
  auto alone = std::async(std::launch::async, [&] { return join("main", true); });
  EXPECT_EQ(alone.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_TRUE(first->published() && first->land([](const Moves&) { return true; }));
  first.reset();
  auto link = alone.get();
  EXPECT_EQ(link->before(), std::nullopt);
  auto next = std::async(std::launch::async, [&] { return make(3); });
  EXPECT_EQ(next.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  link->made(commit_number(2), quarantine_, "2");
  EXPECT_EQ(next.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  link.reset();
  EXPECT_EQ(next.get()->before(), std::nullopt);
  // Another branch is another matter.
  EXPECT_EQ(join("other", true)->before(), std::nullopt);
}

TEST_F(CommitChain, TheProcessHasItsTurnFromTheFirstOnItsWayToTheLast) {
  const auto swap = [](const Moves&) { return true; };
  auto first = make(1), second = make(2);
  EXPECT_EQ(taken_, 1);
  EXPECT_TRUE(land(*first, swap).get());
  EXPECT_EQ(held_, 1);
  auto third = make(3);
  EXPECT_TRUE(land(*second, swap).get());
  EXPECT_EQ(held_, 1);
  third.reset();
  EXPECT_EQ(held_, 0) << "one that breaks ends it, too";
  auto fourth = make(4);
  EXPECT_EQ(taken_, 2);
  EXPECT_FALSE(land(*fourth, [](const Moves&) { return false; }).get());
  EXPECT_EQ(held_, 0) << "and one that lost";
}

TEST_F(CommitChain, NobodyJoinsWhileAnotherProcessWaitsForItsTurn) {
  const auto swap = [](const Moves&) { return true; };
  auto first = make(1), second = make(2);
  is_wanted_ = true;
  auto third = std::async(std::launch::async, [&] { return make(3); });
  EXPECT_EQ(third.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_TRUE(land(*first, swap).get());
  EXPECT_EQ(third.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_EQ(taken_, 1);
  EXPECT_TRUE(land(*second, swap).get());
  EXPECT_EQ(third.get()->before(), std::nullopt) << "made on what the other one may have committed";
  EXPECT_EQ(taken_, 2);
}

TEST_F(CommitChain, ATurnThatCannotBeTakenHoldsUpNobodyElse) {
  EXPECT_THROW(chains_.join("main", false, []() -> std::unique_ptr<ReferenceStore::Turn> {
    throw Error(Errc::input_output, "too many open files");
  }), Error);
  EXPECT_EQ(make(1)->before(), std::nullopt);
}

TEST_F(CommitChain, AQuarantineStaysAsLongAsItIsRead) {
  auto first = make(1), second = make(2);
  EXPECT_TRUE(first->published() && first->land([](const Moves&) { return true; }));
  auto gone = std::async(std::launch::async, [&] { first.reset(); });
  EXPECT_EQ(gone.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_TRUE(second->published());
  gone.get();
}

TEST_F(CommitChain, ManyThreadsLandEachCommitOnceInTheOrderOfTheirParents) {
  std::vector<ObjectId> branch;
  int swaps = 0;  // as `branch`: one swap at a time
  std::atomic<int> landed = 0, wrong = 0;
  std::vector<std::thread> threads;
  for (int number = 0; number < 8; ++number) {
    threads.emplace_back([&, number] {
      for (int turn = 0; turn < 200;) {
        auto link = join("main", turn % 17 == 0);
        const std::optional<ObjectId> parent = link->before();
        link->made(commit_number(number), quarantine_, "");
        if ((turn + number) % 13 == 0 && number % 2 == 0) {
          ++turn;  // fails, and takes those behind with it
          continue;
        }
        if (!link->published()) continue;
        const bool has_moved = link->land([&](const Moves& moves) {
          if (parent && branch.back() != *parent) ++wrong;
          if (++swaps % 11 == 0) {
            branch.push_back(commit_number(9));  // others were there first
            return false;
          }
          for (const auto& move : moves) branch.push_back(move.to);
          return true;
        });
        landed += has_moved;
        turn += has_moved;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(landed.load(), 1000);
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace escrow::session
