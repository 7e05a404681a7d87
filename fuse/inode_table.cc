#include "fuse/inode_table.h"

namespace escrow::fuse {

void InodeTable::release(session::NodeId node) noexcept {
  try {
    file_system_.release(node);
  } catch (...) {
    // See the header.
  }
}

void InodeTable::looked_up(session::NodeId node) {
  if (node == session::kRootNode) return;
  auto counts = shard_of(node).lock();
  const auto [found, is_new] = counts->try_emplace(node, 0);
  if (is_new) {
    try {
      file_system_.retain(node);
    } catch (...) {
      counts->erase(found);
      throw;
    }
  }
  ++found->second;
}

void InodeTable::forget(session::NodeId node, std::uint64_t lookups) noexcept {
  auto counts = shard_of(node).lock();
  const auto found = counts->find(node);
  if (found == counts->end()) return;
  if (found->second > lookups) {
    found->second -= lookups;
    return;
  }
  counts->erase(found);
  release(node);
}

void InodeTable::forget_all() noexcept {
  for (auto& shard : shards_) {
    auto counts = shard.lock();
    for (const auto& [node, lookups] : *counts) release(node);
    counts->clear();
  }
}

bool InodeTable::holds(session::NodeId node) {
  return node == session::kRootNode || shard_of(node).lock()->contains(node);
}

std::size_t InodeTable::size() {
  std::size_t total = 0;
  for (auto& shard : shards_) total += shard.lock()->size();
  return total;
}

}  // namespace escrow::fuse
