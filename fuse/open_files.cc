#include "fuse/open_files.h"

#include <utility>

#include "fuse/passthrough.h"

namespace escrow::fuse {

using session::NodeId;

void OpenFiles::close(NodeId node, session::OpenIntent intent) noexcept {
  try {
    file_system_.close(node, intent);
  } catch (...) {
    // Nobody could be told: close(2) has returned long ago. What was to be learned is learned at the next look.
  }
}

// The backing id of a file that nobody has open.
int OpenFiles::decide(NodeId node, session::OpenIntent intent) {
  intent.raw = session_ != nullptr;
  if (const auto raw = file_system_.open(node, intent)) {
    if (const int id = open_backing(session_, raw->descriptor()); id > 0) return id;
    // This one file cannot be (for example, its disk is itself a stack of file systems): cached, then.
    close(node, intent);
    intent.raw = false;
    file_system_.open(node, intent);
  }
  return 0;
}

int OpenFiles::open(File& file, NodeId node, session::OpenIntent intent) {
  if (file.readers + file.writers == 0) {
    file.backing_id = decide(node, intent);
  } else {
    intent.raw = file.backing_id != 0;
    file_system_.open(node, intent);
  }
  // Stores through a mapping would leave the kernel's copy of the times as it is.
  if (file.backing_id != 0 && intent.write && file.writers == 0) {
    fuse_lowlevel_notify_inval_inode(session_, node.value, -1, 0);
  }
  ++(intent.write ? file.writers : file.readers);
  return file.backing_id;
}

int OpenFiles::open(NodeId node, session::OpenIntent intent) {
  std::shared_ptr<session::Synchronized<File>> file;
  {
    auto slots = shard_of(node).lock();
    Slot& slot = (*slots)[node];
    if (!slot.file) slot.file = std::make_shared<session::Synchronized<File>>();
    ++slot.users;
    file = slot.file;
  }
  try {
    return open(*file->lock(), node, intent);
  } catch (...) {
    leave(node);
    throw;
  }
}

void OpenFiles::leave(NodeId node) noexcept {
  auto slots = shard_of(node).lock();
  const auto slot = slots->find(node);
  if (slot != slots->end() && --slot->second.users == 0) slots->erase(slot);
}

void OpenFiles::release(NodeId node, bool write) noexcept {
  std::shared_ptr<session::Synchronized<File>> held;
  {
    auto slots = shard_of(node).lock();
    const auto slot = slots->find(node);
    if (slot == slots->end()) return;
    held = slot->second.file;
  }
  {
    auto file = held->lock();
    std::uint64_t& opens = write ? file->writers : file->readers;
    if (opens == 0) return;
    --opens;
    const bool raw = file->backing_id != 0;
    if (raw && file->readers + file->writers == 0) {
      close_backing(session_, file->backing_id);
      file->backing_id = 0;
    }
    close(node, {.write = write, .raw = raw});
  }
  leave(node);
}

std::vector<std::pair<NodeId, OpenFiles::File>> OpenFiles::all() {
  std::vector<std::pair<NodeId, std::shared_ptr<session::Synchronized<File>>>> held;
  for (auto& shard : shards_) {
    auto slots = shard.lock();
    for (const auto& [node, slot] : *slots) held.emplace_back(node, slot.file);
  }
  std::vector<std::pair<NodeId, File>> files;
  files.reserve(held.size());
  for (const auto& [node, file] : held) files.emplace_back(node, *file->lock());
  return files;
}

std::vector<NodeId> OpenFiles::open_for_writing() {
  std::vector<NodeId> nodes;
  for (const auto& [node, file] : all())
    if (file.writers > 0) nodes.push_back(node);
  return nodes;
}

void OpenFiles::release_all() noexcept {
  for (const auto& [node, file] : all()) {
    for (std::uint64_t i = 0; i < file.readers; ++i) release(node, false);
    for (std::uint64_t i = 0; i < file.writers; ++i) release(node, true);
  }
}

}  // namespace escrow::fuse
