// Contents of which a power loss would leave less than was written, on their way to the disk.
//
// The kernel writes every dirty page back within about half a minute by itself. What it cannot do is tell that it has:
// until a sync of the staging file says so, the journal names blocks that were copied up as not certain, and a power
// loss would take the edits of hours. So such a file is synced a while after its row was written.
#include <chrono>
#include <thread>

#include "session/overlay/overlay_impl.h"

namespace escrow::session {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// A file that is written for long is synced this often: about as often as a journalling file system does.
constexpr auto kSyncBehind = 5s;

}  // namespace

void Overlay::Impl::sync_later(NodeId node, const std::shared_ptr<Content>& content) {
  auto now = unsynced.lock();
  if (now->stop || !now->queued.insert(node).second) return;
  now->queue.push_back({node, content, steady_clock::now() + kSyncBehind});
  if (!now->thread.joinable()) now->thread = std::thread([this] { run_syncer(); });
  unsynced_changed.notify_one();
}

void Overlay::Impl::run_syncer() {
  for (;;) {
    std::vector<Unsynced::Item> items;
    {
      auto now = unsynced.lock();
      if (now->stop) return;
      if (now->queue.empty() || now->queue.front().due > steady_clock::now()) {
        if (now->queue.empty())
          unsynced_changed.wait(now.lock());
        else
          unsynced_changed.wait_until(now.lock(), now->queue.front().due);
        continue;
      }
      for (; !now->queue.empty() && now->queue.front().due <= steady_clock::now(); now->queue.pop_front()) {
        now->queued.erase(now->queue.front().node);
        items.push_back(std::move(now->queue.front()));
      }
    }
    sync_unsynced(std::move(items));
  }
}

// What fails is said by the next fsync of the file, and by the commit.
void Overlay::Impl::sync_unsynced(std::vector<Unsynced::Item> items) {
  if (items.size() > kSyncAllThreshold) {
    std::vector<std::shared_ptr<Content>> held;
    std::vector<Content*> contents;
    for (const Unsynced::Item& item : items) {
      if (auto content = item.content.lock()) held.push_back(std::move(content));
    }
    for (const auto& content : held) contents.push_back(content.get());
    sync_if_many(contents);
  }
  for (const Unsynced::Item& item : items) {
    const auto content = item.content.lock();
    if (!content || abandoned) continue;
    try {
      content->sync();
      mark_recorded_anew(item.node, *content);
    } catch (const std::exception& error) {
      log.write(LogLevel::error, std::string("syncing an edited file: ") + error.what());
      if (!content->is_damaged()) sync_later(item.node, content);
    }
  }
}

// The node's row is to say what has become durable.
void Overlay::Impl::mark_recorded_anew(NodeId id, const Content& content) {
  auto now = guarded.lock();
  const auto found = now->nodes.find(id);
  if (found != now->nodes.end() && found->second->content.get() == &content) mark(*now, *found->second);
}

// Also brings to disk what waits: nobody will, later.
void Overlay::Impl::stop_syncing() {
  std::deque<Unsynced::Item> left;
  std::thread thread;
  {
    auto now = unsynced.lock();
    now->stop = true;
    left = std::move(now->queue);
    thread = std::move(now->thread);
    unsynced_changed.notify_all();
  }
  if (thread.joinable()) thread.join();
  if (!abandoned) sync_unsynced({std::make_move_iterator(left.begin()), std::make_move_iterator(left.end())});
}

}  // namespace escrow::session
