// Keeps requests that write a file, in several steps, from being cut in two: a commit or a savepoint has all that such
// a request writes, or nothing of it.
//
// Thread-safe. Whoever writes takes a turn, and is not kept waiting for one; whoever takes the cut waits for the turns
// that are out. While a turn is out its thread may wait for calls of the mount, so a cut closes the gate (write_gate.h)
// behind the exclusion and not before it.
#pragma once

#include <condition_variable>
#include <memory>

#include "session/base/synchronized.h"

namespace escrow::daemon {

class FileWriteTurns {
 public:
  // Until the result goes away. Null: they are excluded.
  std::shared_ptr<void> try_take();
  // Waits for the turns that are out; until the result goes away there are none.
  std::shared_ptr<void> exclude();

 private:
  struct State {
    unsigned out = 0, exclusions = 0;
  };
  session::Synchronized<State> state_;  // self-locking
  std::condition_variable back_;        // with state_: the last turn is
};

}  // namespace escrow::daemon
