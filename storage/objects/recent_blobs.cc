#include "storage/objects/recent_blobs.h"

namespace escrow::storage {

using session::ByteSource;
using session::ObjectId;

std::shared_ptr<const ByteSource> RecentBlobs::find(const ObjectId& id) const {
  auto both = blobs_.lock();
  for (Blobs& blobs : *both) {
    const auto found = blobs.by_id.find(id);
    if (found == blobs.by_id.end()) continue;
    blobs.recent.splice(blobs.recent.begin(), blobs.recent, found->second);
    return found->second->second;
  }
  return nullptr;
}

void RecentBlobs::keep(const ObjectId& id, const std::shared_ptr<const ByteSource>& blob) {
  const bool is_large = blob->size() > kOneRequestBytes;
  const auto charged = [](const ByteSource& bytes) { return bytes.size() + sizeof(Blobs::Entry); };
  std::list<Blobs::Entry> dropped;  // after the lock
  auto both = blobs_.lock();
  Blobs& blobs = (*both)[is_large ? 1 : 0];
  if (blobs.by_id.contains(id)) return;
  blobs.recent.emplace_front(id, blob);
  blobs.by_id[id] = blobs.recent.begin();
  blobs.bytes += charged(*blob);
  while (blobs.bytes > (is_large ? kLargeBytes : kSmallBytes)) {
    const auto oldest = std::prev(blobs.recent.end());
    blobs.bytes -= charged(*oldest->second);
    blobs.by_id.erase(oldest->first);
    dropped.splice(dropped.end(), blobs.recent, oldest);
  }
}

}  // namespace escrow::storage
