#include "storage/lfs/lfs_files.h"

#include <algorithm>
#include <span>
#include <string>

#include "storage/disk/byte_sources.h"

namespace escrow::storage {
namespace {

constexpr std::size_t kMostOpened = 32;

bool has_length_of_pointer(std::uint64_t size) {
  return size >= session::kSmallestLfsPointer_bytes && size <= session::kLargestLfsPointer_bytes;
}

std::optional<session::LfsPointer> pointer_in(const session::ByteSource& blob) {
  return session::parse_lfs_pointer(read_unchanged(blob));
}

}  // namespace

std::optional<session::LfsPointer> LfsFiles::pointer_of(const session::ObjectId& blob) const {
  return has_length_of_pointer(objects_.blob_size(blob)) ? pointer_in(*objects_.open_blob(blob)) : std::nullopt;
}

std::uint64_t LfsFiles::blob_size(const session::ObjectId& id) const {
  const std::uint64_t size = objects_.blob_size(id);
  if (!has_length_of_pointer(size)) return size;
  const auto pointer = pointer_in(*objects_.open_blob(id));
  return pointer ? pointer->size_bytes : size;
}

LfsFiles::Source LfsFiles::opened_before(const session::ObjectId& id) const {
  auto opened = opened_.lock();
  const auto found = std::find_if(opened->begin(), opened->end(), [&](const auto& one) { return one.first == id; });
  if (found == opened->end()) return nullptr;
  std::rotate(opened->begin(), found, found + 1);
  return opened->front().second;
}

std::shared_ptr<const session::ByteSource> LfsFiles::open_blob(const session::ObjectId& id) const {
  // Most blobs are no pointers: they are looked for once, and no lock is taken.
  Source blob = objects_.open_blob(id);
  if (!has_length_of_pointer(blob->size())) return blob;
  if (Source known = opened_before(id)) return known;
  const auto pointer = pointer_in(*blob);
  if (!pointer) return blob;
  Source source = store_.open(*pointer);
  auto opened = opened_.lock();
  opened->emplace_front(id, source);
  if (opened->size() > kMostOpened) opened->pop_back();
  return source;
}

}  // namespace escrow::storage
