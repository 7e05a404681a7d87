#include "storage/staging/tiered_staging_area.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "session/base/error.h"

namespace escrow::storage {

using session::SeekTarget;
using session::StagingId;
using session::StagingUsage;

namespace {

// A writer that finds more than this waiting appends it itself: memory stays bounded.
constexpr std::uint64_t kDirtyLimitBytes = std::uint64_t{8} << 20;
// A file whose content went to the log this often keeps changing: it is better off on its own.
constexpr std::uint8_t kAppendLimit = 4;
// Bytes wait in memory only while this much is free, many times what can wait: appending them then cannot fail for
// want of space unless others fill the disk within the moment.
constexpr std::uint64_t kRoomBytes = 16 * kDirtyLimitBytes;
constexpr std::uint64_t kTieredPageBytes = 4096, kPageBlocks = 8;

}  // namespace

TieredStagingArea::TieredStagingArea(std::string directory, std::size_t descriptors)
    : files_(directory, descriptors), log_(directory) {
  measure_room();
  const auto found = log_.load();
  if (found.empty()) return;
  const std::vector<StagingId> own = files_.list();
  for (const auto& [id, place] : found) {
    if (std::binary_search(own.begin(), own.end(), id)) {
      log_.release(place);
      continue;
    }
    Small small;
    small.place = place;
    small.size = place.length;
    small.was_synced = true;
    shard(id).lock()->files.emplace(id, std::move(small));
  }
}

// Small ones first: one that gets a file of its own meanwhile is in a segment that is linked already.
void TieredStagingArea::share(const std::vector<StagingId>& files, const std::string& directory) {
  write_behind();
  log_.share(directory);
  files_.share(files, directory);
}

// ---- small files ----

TieredStagingArea::Small* TieredStagingArea::find(Shard& shard, StagingId id) {
  const auto found = shard.files.find(id);
  return found == shard.files.end() ? nullptr : &found->second;
}

void TieredStagingArea::measure_room() noexcept {
  try {
    const FreeSpace free = files_.free_space();
    has_room_ = free.blocks_available * free.block_size >= kRoomBytes;
  } catch (const session::Error&) {
    has_room_ = false;
  }
}

bool TieredStagingArea::is_small(StagingId id) const {
  auto guard = shard(id).lock();
  return find(*guard, id) != nullptr;
}

std::string TieredStagingArea::bytes_of(StagingId id, const Small& small) const {
  if (small.dirty) return small.bytes;
  if (small.damaged)
    throw session::Error(session::Errc::input_output, "the disk lost the bytes of the staging file " +
                                                          FileStagingArea::file_name(id) + "; write the file anew");
  std::string bytes(small.size, '\0');
  if (small.place) log_.read(small.place, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

void TieredStagingArea::make_dirty(Shard& shard, StagingId id, Small& small) {
  shard.dirty.push_back(id);
  small.dirty = true;
  dirty_bytes_ += small.bytes.size();
}

template <typename Change>
bool TieredStagingArea::change_small(StagingId id, std::uint64_t new_size, Change change) {
  auto guard = shard(id).lock();
  Small* const small = find(*guard, id);
  if (!small) return false;
  if (new_size == 0) small->damaged = false;  // nothing is left that could be lost
  if (new_size > kSmallBytes || small->appends >= kAppendLimit || !has_room_) {
    give_own_file(*guard, id);
    return false;
  }
  if (!small->dirty) {
    if (new_size > 0) small->bytes = bytes_of(id, *small);
    make_dirty(*guard, id, *small);
  }
  const std::uint64_t before = small->bytes.size();
  change(small->bytes);
  dirty_bytes_ += small->bytes.size() - before;  // modulo 2^64, so that it may shrink
  small->size = static_cast<std::uint32_t>(small->bytes.size());
  small->changes += 1;
  small->moves = false;
  return true;
}

void TieredStagingArea::forget(Shard& shard, StagingId id) {
  const auto found = shard.files.find(id);
  if (found == shard.files.end()) return;
  if (found->second.dirty) dirty_bytes_ -= found->second.bytes.size();
  if (found->second.place) log_.release(found->second.place);
  shard.files.erase(found);
}

bool TieredStagingArea::is_promised(const Small& small) const {
  return small.was_synced || (small.place && log_.is_synced(small.place));
}

void TieredStagingArea::give_own_file(Shard& shard, StagingId id) {
  const Small& small = *find(shard, id);
  const std::string bytes = bytes_of(id, small);
  files_.create_with(id, std::as_bytes(std::span(bytes)), is_promised(small));
  forget(shard, id);
}

void TieredStagingArea::give_own_file(StagingId id) {
  auto guard = shard(id).lock();
  if (find(*guard, id)) give_own_file(*guard, id);
}

void TieredStagingArea::create(StagingId id) {
  auto guard = shard(id).lock();
  const auto [made, is_new] = guard->files.try_emplace(id);
  if (!is_new) throw session::Error(session::Errc::input_output, "a staging id was given out twice");
  make_dirty(*guard, id, made->second);
}

void TieredStagingArea::remove(StagingId id) {
  {
    auto guard = shard(id).lock();
    if (find(*guard, id)) return forget(*guard, id);
  }
  files_.remove(id);
}

std::vector<StagingId> TieredStagingArea::list() const {
  std::vector<StagingId> ids = files_.list();
  for (auto& one : shards_) {
    auto guard = one.lock();
    for (const auto& [id, small] : guard->files) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

// ---- bytes ----

StagingUsage TieredStagingArea::usage(StagingId id) const {
  {
    auto guard = shard(id).lock();
    if (const Small* small = find(*guard, id)) {
      return {small->size, (small->size + kTieredPageBytes - 1) / kTieredPageBytes * kPageBlocks, {}};
    }
  }
  return files_.usage(id);
}

std::size_t TieredStagingArea::read(StagingId id, std::uint64_t offset, std::span<std::byte> out) const {
  {
    auto guard = shard(id).lock();
    if (const Small* small = find(*guard, id)) {
      if (offset >= small->size) return 0;
      const std::size_t count = std::min<std::uint64_t>(out.size(), small->size - offset);
      if (!small->dirty && !small->damaged) return log_.read(small->place, offset, out.first(count));
      const std::string& bytes = small->dirty ? small->bytes : bytes_of(id, *small);
      std::memcpy(out.data(), bytes.data() + offset, count);
      return count;
    }
  }
  return files_.read(id, offset, out);
}

bool TieredStagingArea::write_small(StagingId id, std::uint64_t offset, std::span<const std::byte> bytes) {
  const bool done = change_small(id, offset + bytes.size(), [&](std::string& content) {
    if (content.size() < offset + bytes.size()) content.resize(offset + bytes.size());
    std::memcpy(content.data() + offset, bytes.data(), bytes.size());
  });
  if (done && dirty_bytes_ > kDirtyLimitBytes) write_behind();
  return done;
}

void TieredStagingArea::write(StagingId id, std::uint64_t offset, std::span<const std::byte> bytes) {
  if (!write_small(id, offset, bytes)) files_.write(id, offset, bytes);
}

void TieredStagingArea::write_copy(StagingId id, std::uint64_t offset, std::span<const std::byte> bytes) {
  if (!write_small(id, offset, bytes)) files_.write_copy(id, offset, bytes);
}

void TieredStagingArea::truncate(StagingId id, std::uint64_t size_bytes) {
  if (!change_small(id, size_bytes, [&](std::string& content) { content.resize(size_bytes); })) {
    files_.truncate(id, size_bytes);
  }
}

void TieredStagingArea::allocate(StagingId id, std::uint64_t offset, std::uint64_t length, bool extend) {
  give_own_file(id);
  files_.allocate(id, offset, length, extend);
}

void TieredStagingArea::punch_hole(StagingId id, std::uint64_t offset, std::uint64_t length) {
  give_own_file(id);
  files_.punch_hole(id, offset, length);
}

void TieredStagingArea::zero_range(StagingId id, std::uint64_t offset, std::uint64_t length, bool extend) {
  give_own_file(id);
  files_.zero_range(id, offset, length, extend);
}

std::optional<std::uint64_t> TieredStagingArea::seek(StagingId id, std::uint64_t offset, SeekTarget target) const {
  {
    auto guard = shard(id).lock();
    if (const Small* small = find(*guard, id)) return session::seek_all_data(small->size, offset, target);
  }
  return files_.seek(id, offset, target);
}

std::unique_ptr<session::RawFile> TieredStagingArea::raw(StagingId id) {
  give_own_file(id);
  return files_.raw(id);
}

bool TieredStagingArea::has_writers(StagingId id) const { return !is_small(id) && files_.has_writers(id); }

// ---- durability ----

std::vector<TieredStagingArea::Waiting> TieredStagingArea::take_waiting() {
  std::vector<Waiting> waiting;
  for (auto& one : shards_) {
    auto guard = one.lock();
    for (const StagingId id : std::exchange(guard->dirty, {})) {
      if (const Small* small = find(*guard, id)) waiting.push_back({id, small->changes, small->bytes});
    }
  }
  return waiting;
}

void TieredStagingArea::give_back(const std::vector<Waiting>& waiting) {
  for (const Waiting& item : waiting) {
    auto guard = shard(item.id).lock();
    if (find(*guard, item.id)) guard->dirty.push_back(item.id);
  }
}

// What changed again meanwhile stays dirty; what is gone meanwhile needs no record.
void TieredStagingArea::settle(const std::vector<Waiting>& waiting, const std::vector<SmallFileLog::Place>& places) {
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    const Waiting& item = waiting[i];
    auto guard = shard(item.id).lock();
    Small* const small = find(*guard, item.id);
    if (!small) {
      log_.release(places[i]);
      continue;
    }
    small->was_synced = is_promised(*small);
    if (small->place) log_.release(small->place);
    small->place = places[i];
    if (!small->moves) small->appends += 1;
    if (small->changes != item.changes) {
      guard->dirty.push_back(item.id);
      continue;
    }
    dirty_bytes_ -= small->bytes.size();
    small->dirty = small->moves = false;
    std::string().swap(small->bytes);  // an assignment would keep the memory
  }
}

void TieredStagingArea::write_behind() {
  {
    const auto busy = appending_.lock();
    empty_failed_segments();
    for (const std::uint32_t segment : log_.wasteful()) empty_segment(segment);
    const std::vector<Waiting> waiting = take_waiting();
    if (!waiting.empty()) {
      std::vector<SmallFileLog::Record> records;
      records.reserve(waiting.size());
      for (const Waiting& item : waiting) records.push_back({item.id, item.bytes});
      std::vector<SmallFileLog::Place> places;
      try {
        places = log_.append(records);
      } catch (...) {
        give_back(waiting);
        throw;
      }
      settle(waiting, places);
      measure_room();
    }
  }
  log_.remove_unused();
}

// ---- records that are to lie elsewhere ----

// Takes what counts in a segment into memory, to be appended anew.
void TieredStagingArea::empty_segment(std::uint32_t segment) {
  for (const StagingId id : log_.ids_in(segment)) {
    auto guard = shard(id).lock();
    Small* const small = find(*guard, id);
    if (!small || small->dirty || small->place.segment != segment) continue;
    if (auto bytes = log_.read_checked(id, small->place)) {
      small->bytes = std::move(*bytes);
      small->moves = true;
      make_dirty(*guard, id, *small);
    } else {
      log_.release(std::exchange(small->place, {}));
      small->damaged = true;
    }
  }
}

void TieredStagingArea::empty_failed_segments() {
  for (const std::uint32_t segment : log_.failed()) empty_segment(segment);
}

session::StagingArea::Lost TieredStagingArea::lost(StagingId id) const {
  {
    auto guard = shard(id).lock();
    if (const Small* small = find(*guard, id)) {
      Lost lost;
      if (small->damaged) lost.written.add(0, session::ByteRanges::kEnd);
      return lost;
    }
  }
  return files_.lost(id);
}

// ---- syncs ----

// Where a segment cannot be synced, its bytes are read at once: as long as the kernel still has them.
void TieredStagingArea::sync_log() {
  try {
    log_.sync();
  } catch (...) {
    empty_failed_segments();
    throw;
  }
}

void TieredStagingArea::sync(StagingId id) {
  if (is_small(id)) {
    write_behind();
    sync_log();
    // Grown meanwhile: what moved before the record was on disk is in the file only.
    auto guard = shard(id).lock();
    if (const Small* small = find(*guard, id)) {
      if (small->damaged) bytes_of(id, *small);
      return;
    }
  }
  files_.sync(id);
}

void TieredStagingArea::sync_directory() {
  write_behind();
  sync_log();
  files_.sync_directory();
}

void TieredStagingArea::sync_all() {
  write_behind();
  sync_log();
  files_.sync_all();
}

std::uint64_t TieredStagingArea::held_bytes() const {
  return files_.held_bytes() + log_.space().held_bytes + dirty_bytes_;
}

std::uint64_t TieredStagingArea::era() const { return files_.era(); }

session::StagingArea::FreeSpace TieredStagingArea::free_space() const { return files_.free_space(); }

}  // namespace escrow::storage
