// Contents that stopped changing, on their way to be stored before the commit asks for them.
#include <chrono>

#include "session/overlay/overlay_impl.h"

namespace escrow::session {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// Programs that write a file in steps are mostly done with it after this.
constexpr auto kQuiet = 250ms;
// Larger ones are stored at the commit: one that changes again and again would be hashed and written in vain.
constexpr std::uint64_t kStoredAheadBytes = std::uint64_t{8} << 20;

}  // namespace

void Overlay::Impl::settle_later(const std::vector<std::pair<std::size_t, std::shared_ptr<Content>>>& recorded) {
  if (recorded.empty()) return;
  auto now = settling.lock();
  const auto due = steady_clock::now() + kQuiet;
  for (const auto& [index, content] : recorded) now->queue.push_back({content, content->version(), due});
  settled.notify_one();
}

bool Overlay::wait_for_settled() {
  auto now = impl_->settling.lock();
  for (;;) {
    if (now->stop) return false;
    if (now->queue.empty())
      impl_->settled.wait(now.lock());
    else if (now->queue.front().due > steady_clock::now())
      impl_->settled.wait_until(now.lock(), now->queue.front().due);
    else
      return true;
  }
}

void Overlay::stop_settling() {
  impl_->settling.lock()->stop = true;
  impl_->settled.notify_all();
}

void Overlay::store_settled(Quarantine& quarantine) {
  std::shared_ptr<Content> content;
  {
    auto now = impl_->settling.lock();
    if (now->queue.empty()) return;
    const Impl::Settling::Item item = now->queue.front();
    now->queue.pop_front();
    content = item.content.lock();
    // One that changed since is recorded, and so queued, once more.
    if (!content || content->version() != item.version) return;
  }
  if (content->usage().size_bytes <= kStoredAheadBytes && content->settle()) Impl::store(*content, quarantine, {});
}

}  // namespace escrow::session
