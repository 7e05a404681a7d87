#include "fuse/open_files.h"

#include <algorithm>
#include <utility>

#include "fuse/passthrough.h"
#include "session/base/error.h"

namespace escrow::fuse {

using session::NodeId;

void OpenFiles::close(NodeId node, session::OpenIntent intent) noexcept {
  try {
    file_system_.close(node, intent);
  } catch (...) {
    // Nobody could be told: close(2) has returned long ago. What was to be learned is learned at the next look.
  }
}

// One attempt; empty when another open decided otherwise meanwhile.
std::optional<int> OpenFiles::try_open(NodeId node, session::OpenIntent intent) {
  {
    const auto files = shard_of(node).lock();
    const File& file = files->at(node);
    intent.raw = file.backing_id ? file.is_passed_through() : session_ != nullptr;
  }
  const auto raw = file_system_.open(node, intent);

  bool is_decided = false, is_first_writer = false;
  int backing_id = 0;
  {
    auto files = shard_of(node).lock();
    File& file = files->at(node);
    // A file whose disk is itself a stack of file systems, for example, has none: it is cached, then.
    if (!file.backing_id) file.backing_id = raw ? std::max(open_backing(session_, raw->descriptor()), 0) : 0;
    is_decided = file.is_passed_through() == (raw != nullptr);
    backing_id = *file.backing_id;
    if (is_decided) is_first_writer = ++(intent.write ? file.writers : file.readers) == 1 && intent.write;
  }
  if (!is_decided) {
    if (raw) {
      close(node, intent);
    } else if (intent.raw) {
      // The kernel could only be told EIO later, and what it wrote meanwhile would be known to nobody.
      throw session::Error(session::Errc::busy, "a file that is passed through cannot be opened in another way");
    }
    return std::nullopt;
  }
  // Stores through a mapping would leave the kernel's copy of the times as it is.
  if (raw && is_first_writer) fuse_lowlevel_notify_inval_inode(session_, node.value, -1, 0);
  return backing_id;
}

int OpenFiles::open(NodeId node, session::OpenIntent intent) {
  ++(*shard_of(node).lock())[node].users;
  try {
    for (;;)
      if (const auto backing_id = try_open(node, intent)) return *backing_id;
  } catch (...) {
    leave(node);
    throw;
  }
}

void OpenFiles::leave(NodeId node) noexcept {
  int unused = 0;
  {
    auto files = shard_of(node).lock();
    const auto file = files->find(node);
    if (file == files->end() || --file->second.users > 0) return;
    unused = file->second.backing_id.value_or(0);
    files->erase(file);
  }
  if (unused != 0) close_backing(session_, unused);
}

void OpenFiles::release(NodeId node, bool write) noexcept {
  bool raw = false;
  {
    auto files = shard_of(node).lock();
    const auto file = files->find(node);
    if (file == files->end()) return;
    std::uint64_t& opens = write ? file->second.writers : file->second.readers;
    if (opens == 0) return;
    --opens;
    raw = file->second.is_passed_through();
  }
  // Before leave(): the file system knows what was written before the next open can decide otherwise.
  close(node, {.write = write, .raw = raw});
  leave(node);
}

std::vector<std::pair<NodeId, OpenFiles::File>> OpenFiles::all() {
  std::vector<std::pair<NodeId, File>> all;
  for (auto& shard : shards_) {
    const auto files = shard.lock();
    all.insert(all.end(), files->begin(), files->end());
  }
  return all;
}

std::vector<NodeId> OpenFiles::open_for_writing() {
  std::vector<NodeId> nodes;
  for (const auto& [node, file] : all())
    if (file.may_have_dirty_pages()) nodes.push_back(node);
  return nodes;
}

bool OpenFiles::may_have_dirty_pages(NodeId node) {
  const auto files = shard_of(node).lock();
  const auto file = files->find(node);
  return file != files->end() && file->second.may_have_dirty_pages();
}

void OpenFiles::release_all() noexcept {
  for (const auto& [node, file] : all()) {
    for (std::uint64_t i = 0; i < file.readers; ++i) release(node, false);
    for (std::uint64_t i = 0; i < file.writers; ++i) release(node, true);
  }
}

}  // namespace escrow::fuse
