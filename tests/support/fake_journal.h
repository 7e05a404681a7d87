// A session journal in memory that remembers every batch. Not thread-safe, as the real one, but for its counters.
// A test can kill the process (batches stay), or pull the plug: what came after the last barrier is lost, or any
// part of it up to a batch of the test's choice.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "session/base/error.h"
#include "session/base/synchronized.h"
#include "session/interfaces/session_journal.h"
#include "tests/support/fake_power.h"

namespace escrow::support {

class FakeJournal final : public session::SessionJournal {
 public:
  session::JournalState load(session::LayerId top = {}) override;
  std::vector<session::Savepoint> savepoints() override { return load().savepoints; }
  std::vector<session::NodeRow> all_nodes() override;
  void append(const session::JournalBatch& batch) override;
  void barrier() override;

  std::size_t batch_count() const;
  // Of them, how many a barrier has made durable.
  std::size_t durable_count() const;
  std::size_t barrier_count() const;
  std::vector<session::JournalBatch> batches() const;

  // Power loss: only what a barrier covered is left.
  void drop_unbarriered();
  // Only the first `count` batches are left: a kill between two appends, or a power loss that kept some of them.
  void keep_first(std::size_t count);
  // The power is back: what is left is on disk.
  void lose_power(std::size_t kept);
  // append() and barrier() use it up.
  void use_power(FakePower& power) { power_ = &power; }
  // Called by append() and barrier() first; may throw. Set before use.
  std::function<void()> before_write;
  // append() and barrier() throw this from now on; nullopt: they work again.
  void fail_with(std::optional<session::Error> error);

 private:
  struct State {
    std::vector<session::JournalBatch> batches;
    std::size_t durable = 0;
    std::size_t barriers = 0;
    std::optional<session::Error> failure;
  };
  FakePower* power_ = nullptr;                  // constant once it is used
  mutable session::Synchronized<State> state_;  // self-locking
};

// What a journal holds after `batches`, in the layers up to `top`, 0 being all: rows sorted by their keys.
session::JournalState replay(const std::vector<session::JournalBatch>& batches, session::LayerId top = {});

}  // namespace escrow::support
