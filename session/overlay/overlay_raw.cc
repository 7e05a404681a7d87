// Files whose bytes a process reads and writes without a call here (FileSystem::open with `raw`): handing them out, and
// learning from the staging file what became of them.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "session/base/repo_path.h"
#include "session/overlay/overlay_impl.h"

namespace escrow::session {
namespace {

using namespace std::chrono_literals;

// A process that has ended lets go of its files and mappings a little after it was waited for, and what close(2) let go
// of is heard of when the kernel's RELEASE is read: on a busy machine that takes its time.
constexpr auto kPatience = 2s;
constexpr auto kBetweenLooks = 5ms;

}  // namespace

Error unreadable(const std::string& path, const Error& why) {
  return Error(why.code(), "the session's content of " + quote_path(path) + " cannot be read: " + why.what() +
                               "; `escrow discard` takes that path back to the base");
}

// Null for what is not in memory: nothing of it is staged.
std::shared_ptr<Content> Overlay::Impl::content_of(NodeId id) {
  auto now = guarded.lock_shared();
  const Found found = find(*now, id);
  return found.node ? found.node->content : nullptr;
}

// The times of a file that was changed without a call are those of its staging file. A call since then, which changed
// the mode for example, has left a later change time.
void Overlay::Impl::learn(NodeId id, Content& content, const Timestamp& modified) {
  if (!content.would_notice(modified)) return;
  auto now = guarded.lock();
  const Found found = find(*now, id);
  if (!found.node || !content.notice(modified)) return;
  found.node->modified = modified;
  found.node->changed = std::max(found.node->changed, modified);
  mark(*now, *found.node);
}

void Overlay::Impl::learn(NodeId id) {
  if (const auto content = content_of(id)) learn(id, *content, content->usage().modified);
}

std::unique_ptr<RawFile> Overlay::open(NodeId id, OpenIntent intent) {
  if (!intent.raw) return nullptr;
  const auto content = impl_->content_of(id);
  if (!content) return nullptr;
  auto raw = content->open_raw(intent.write);
  if (raw && intent.write) {
    // The staging file may be new: its row is to be written.
    auto now = impl_->guarded.lock();
    if (const Found found = Impl::find(*now, id); found.node) impl_->mark(*now, *found.node);
  }
  return raw;
}

void Overlay::close(NodeId id, OpenIntent intent) {
  if (!intent.raw) return;
  if (intent.write) impl_->learn(id);
  if (const auto content = impl_->content_of(id)) content->close_raw(intent.write);
}

std::optional<std::string> Overlay::still_written() {
  std::vector<std::pair<NodeId, std::shared_ptr<Content>>> exposed;
  {
    auto now = impl_->guarded.lock_shared();
    for (const auto& [id, node] : now->nodes)
      if (node->staged && node->content && node->content->is_exposed()) exposed.emplace_back(id, node->content);
  }
  const auto until = std::chrono::steady_clock::now() + kPatience;
  // One that is lost is named as what commits would name it.
  const auto is_settled = [this](NodeId id, Content& content) {
    try {
      return content.settle();
    } catch (const Error& error) {
      auto now = impl_->guarded.lock_shared();
      const auto node = now->nodes.find(id);
      if (node == now->nodes.end() || node->second->links.empty()) return true;  // removed meanwhile: in no tree
      throw unreadable(Impl::path_of(*now, node->second->links.front()).value_or(""), error);
    }
  };
  for (const auto& [id, content] : exposed) {
    while (!is_settled(id, *content)) {
      if (std::chrono::steady_clock::now() > until) {
        auto now = impl_->guarded.lock_shared();
        const auto node = now->nodes.find(id);
        if (node == now->nodes.end() || node->second->links.empty()) break;  // removed meanwhile: in no tree
        return Impl::path_of(*now, node->second->links.front()).value_or("");
      }
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }
  return std::nullopt;
}

}  // namespace escrow::session
