#include "daemon/host/file_write_turns.h"

namespace escrow::daemon {

std::shared_ptr<void> FileWriteTurns::try_take() {
  auto state = state_.lock();
  if (state->exclusions != 0) return nullptr;
  ++state->out;
  return {this, [](FileWriteTurns* turns) {
            if (--turns->state_.lock()->out == 0) turns->back_.notify_all();
          }};
}

std::shared_ptr<void> FileWriteTurns::exclude() {
  auto state = state_.lock();
  ++state->exclusions;
  back_.wait(state.lock(), [&] { return state->out == 0; });
  return {this, [](FileWriteTurns* turns) { --turns->state_.lock()->exclusions; }};
}

}  // namespace escrow::daemon
