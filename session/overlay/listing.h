// One directory of the snapshot as it was first read: its base entries and the node ids reserved for them.
//
// Constant after construction but for two caches: entry sizes (atomic) and which entries the kernel holds (guarded
// by the overlay's lock). Entry i has the id first + i and the readdir cookie kFirstBaseCookie + i, for the
// session's life.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "session/base/ids.h"
#include "session/interfaces/object_store.h"
#include "session/trees/listed_times.h"

namespace escrow::session {

inline constexpr std::uint64_t kFirstBaseCookie = 3;  // 1 is ".", 2 is ".."

class Listing {
 public:
  static constexpr std::uint64_t kUnknownSize = ~std::uint64_t{0};

  Listing(NodeId first, Tree tree, ListedTimes times)
      : first_(first), entries_(std::move(tree)), times_(std::move(times)), sizes_(entries_.size(), kUnknownSize),
        held_(entries_.size()) {}

  NodeId first() const { return first_; }
  std::size_t size() const { return entries_.size(); }
  const TreeEntry& entry(std::size_t index) const { return entries_[index]; }
  Timestamp modified(std::size_t index) const { return times_.modified(index); }
  TimesBelow times_below(std::size_t index) const { return times_.below(index, entries_[index].name); }
  NodeId node(std::size_t index) const { return {first_.value + index}; }
  std::optional<std::size_t> find(std::string_view name) const;

  // Thread-safe.
  std::uint64_t known_size(std::size_t index) const {
    return std::atomic_ref<std::uint64_t>(sizes_[index]).load(std::memory_order_relaxed);
  }
  void remember_size(std::size_t index, std::uint64_t size_bytes) const {
    std::atomic_ref<std::uint64_t>(sizes_[index]).store(size_bytes, std::memory_order_relaxed);
  }

  // Under the overlay's lock.
  bool held(std::size_t index) const { return held_[index]; }
  void set_held(std::size_t index, bool held) {
    if (held_[index] == held) return;
    held_[index] = held;
    held_count_ += held ? 1 : -1;
  }
  std::size_t held_count() const { return held_count_; }

 private:
  NodeId first_;
  Tree entries_;
  ListedTimes times_;
  mutable std::vector<std::uint64_t> sizes_;
  std::vector<bool> held_;
  std::size_t held_count_ = 0;
};

}  // namespace escrow::session
