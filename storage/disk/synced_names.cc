#include "storage/disk/synced_names.h"

#include <algorithm>

#include "storage/disk/durable_file.h"

namespace escrow::storage {

void SyncedNames::sync() {
  const std::uint64_t wanted = made_.load();
  auto synced = synced_.lock();
  if (*synced >= wanted) return;
  const std::uint64_t made = made_.load();
  sync_directory(directory_);
  if (parent_made_.load()) {
    sync_directory(parent_of(directory_));
    parent_made_ = false;
  }
  *synced = made;
}

void SyncedNames::note(std::uint64_t count) {
  auto synced = synced_.lock();
  *synced = std::max(*synced, count);
}

}  // namespace escrow::storage
