#include "session/overlay/content.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "session/base/error.h"

namespace escrow::session {
namespace {

// Bases up to this size are copied whole at the first write, so that every later access is one plain file's.
constexpr std::uint64_t kCopyWholeLimit = 8 * BlockMap::kBlockSize;
// A file that many savepoints have parts of is copied whole: reading it is never slower than looking through so many.
constexpr std::size_t kMostSealed = 32;
constexpr std::uint64_t kBytesOfABlock = 512;  // of StagingUsage::blocks

std::int64_t nanoseconds(const Timestamp& time) {
  return time.seconds * 1'000'000'000 + static_cast<std::int64_t>(time.nanoseconds);
}

}  // namespace

Content::Form Content::form() const { return state_.lock_shared()->form; }

// ---- what is on disk for certain ----

void Content::restructure(State& state) {
  changed();
  state.structure += 1;
  // Without a staging file the row says everything, and is durable by itself.
  if (!state.is_durable && state.form.staging) return;
  state.is_durable = false;
  state.durable = state.form.is_nothing() ? nullptr : std::make_unique<Form>(state.form);
}

void Content::set_durable(Form durable) {
  auto state = state_.lock();
  state->is_durable = false;
  state->durable = durable.is_nothing() ? nullptr : std::make_unique<Form>(std::move(durable));
}

Content::Recorded Content::recorded() const {
  const auto state = state_.lock_shared();
  if (state->is_durable || !state->form.staging) return {state->form, true, {}};
  return {state->form, false, state->durable ? *state->durable : Form{}};
}

Content::Recorded Content::as_left(Recorded recorded, bool lost_power, const std::function<bool(StagingId)>& present,
                                   const StagingArea& staging) {
  if (lost_power && !recorded.is_durable) {
    const StagingId written = recorded.form.staging;
    recorded.form = std::move(recorded.durable);
    recorded.durable = {};
    recorded.is_durable = true;
    // Never synced, and over no base: what the disk has of it is as good as anything.
    if (recorded.form.is_nothing() && present(written)) {
      recorded.form.staging = written;
      recorded.is_durable = false;
    }
  }
  // A truncation may have reached the staging file and not the row: nothing of the base shows behind it again. After a
  // kill it may have reached the page cache only.
  Form& form = recorded.form;
  if (form.staging && form.base_length > 0 && present(form.staging)) {
    const std::uint64_t size = staging.usage(form.staging).size_bytes;
    if (size < form.base_length) {
      if (!lost_power && recorded.is_durable) {
        recorded.durable = form;
        recorded.is_durable = false;
      }
      form.base_length = size;
      form.map.shrink(BlockMap::blocks_of(size));
    }
  }
  return recorded;
}

Content::SyncedUpTo Content::begin_sync() const {
  const std::uint64_t version = version_.load();
  const auto state = state_.lock_shared();
  return {version, state->structure, state->form};
}

bool Content::end_sync(SyncedUpTo reached) {
  std::uint64_t synced = synced_version_.load();
  while (synced < reached.version && !synced_version_.compare_exchange_weak(synced, reached.version)) {
  }
  auto state = state_.lock();
  if (state->is_durable || reached.structure <= state->durable_structure) return false;
  state->durable_structure = reached.structure;
  state->is_durable = reached.structure == state->structure;
  state->durable = state->is_durable ? nullptr : std::make_unique<Form>(std::move(reached.form));
  return true;
}

bool Content::sync() {
  if (synced_version_.load() >= version_.load() && !exposed_) return false;
  SyncedUpTo reached = begin_sync();
  if (reached.form.staging) {
    try {
      services_.staging.sync(reached.form.staging);
    } catch (...) {
      copy_again();
      throw;
    }
  }
  return end_sync(std::move(reached));
}

bool Content::is_damaged() const {
  const auto is_lost = [&](StagingId id) {
    const StagingArea::Lost lost = services_.staging.lost(id);
    return !lost.written.empty() || !lost.copied.empty();
  };
  const std::vector<StagingId> files = form().staging_files();
  return std::any_of(files.begin(), files.end(), is_lost);
}

// What was lost of the base's bytes can be had again; what was written by others they have to write again.
void Content::copy_again() {
  auto state = state_.lock();
  const StagingId id = state->form.staging;
  if (!id) return;
  const std::vector<ByteRanges::Range> lost = services_.staging.lost(id).copied.ranges();
  if (lost.empty()) return;
  const Form& below = !state->form.has_base() && state->durable ? *state->durable : state->form;
  std::shared_ptr<const ByteSource> source = escrow::session::base_source(below, services_.objects, services_.staging);
  // A copy of what was sealed shows all of it.
  if (!source && below.staging && below.staging != id) {
    const Form whole{.base = {}, .base_length = services_.staging.usage(below.staging).size_bytes, .staging = {},
                     .sealed = std::make_shared<Form>(below)};
    source = escrow::session::base_source(whole, services_.objects, services_.staging);
  }
  if (!source) return;
  std::vector<std::byte> buffer(BlockMap::kBlockSize);
  for (const ByteRanges::Range& range : lost) {
    for (std::uint64_t at = range.begin; at < range.end;) {
      const auto part = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), range.end - at));
      if (source->read(at, part) < part.size())
        throw Error(Errc::input_output, "a blob is shorter than its recorded size");
      services_.staging.write_copy(id, at, part);
      at += part.size();
    }
  }
}

// ---- size and bytes ----

bool Content::only_staged(const State& state) const {
  return state.form.staging && (!state.form.has_base() || state.form.base_length == 0);
}

std::uint64_t Content::size_of(const State& state) const {
  return state.form.staging ? services_.staging.usage(state.form.staging).size_bytes : state.form.base_length;
}

ObjectId Content::unchanged_base() const {
  const auto state = state_.lock_shared();
  if (state->form.staging || state->form.base.is_null()) return {};
  return state->form.base_length == services_.objects.blob_size(state->form.base) ? state->form.base : ObjectId{};
}

StagingUsage Content::usage() const {
  const auto state = state_.lock_shared();
  if (!state->form.staging) return {state->form.base_length, (state->form.base_length + 511) / 512, {}};
  StagingUsage usage = services_.staging.usage(state->form.staging);
  if (!only_staged(*state)) usage.blocks = std::max(usage.blocks, (state->form.base_length + 511) / 512);
  return usage;
}

std::shared_ptr<const ByteSource> Content::base_source() const {
  Form form;
  {
    const auto state = state_.lock_shared();
    if (state->base_source || !state->form.has_base()) return state->base_source;
    form = state->form;
  }
  auto source = escrow::session::base_source(form, services_.objects, services_.staging);
  auto state = state_.lock();
  if (state->form.base == form.base && state->form.sealed == form.sealed) state->base_source = source;
  return source;
}

std::size_t Content::read(std::uint64_t offset, std::span<std::byte> out) const {
  {
    const auto state = state_.lock_shared();
    if (only_staged(*state)) return services_.staging.read(state->form.staging, offset, out);
    if (!state->form.staging && state->form.base_length == 0) return 0;
  }
  for (;;) {
    const auto base = base_source();
    const auto state = state_.lock_shared();
    if (only_staged(*state)) return services_.staging.read(state->form.staging, offset, out);  // completed meanwhile
    if (state->form.has_base() && (!base || state->base_source != base)) continue;  // sealed and written to meanwhile
    return read_form(state->form, base.get(), services_.staging, size_of(*state), offset, out);
  }
}

bool Content::is_sealed(const State& state) const {
  return state.form.staging && state.form.staging.value < services_.sealed_below.load();
}

// What shows below the form's staging file goes into it, up to `size_bytes`.
void Content::copy(const Form& over, std::uint64_t size_bytes) {
  const auto source = escrow::session::base_source(over, services_.objects, services_.staging);
  std::vector<std::byte> buffer(BlockMap::kBlockSize);
  for (std::uint64_t at = 0; at < size_bytes;) {
    const auto part = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), size_bytes - at));
    source->read(at, part);
    services_.staging.write_copy(over.staging, at, part);
    at += part.size();
  }
}

void Content::unseal(State& state, std::uint64_t kept_bytes) {
  if (!is_sealed(state)) return;
  const std::uint64_t size = size_of(state);
  const bool is_copied = std::min(size, kept_bytes) <= kCopyWholeLimit || state.form.depth() >= kMostSealed;
  // What lies below another file is on disk for certain: the row cannot say what a power loss leaves of it.
  if (!is_copied && !state.is_durable) {
    services_.staging.sync(state.form.staging);
    state.durable_structure = state.structure;
    state.is_durable = true;
    state.durable.reset();
  }
  const auto before = std::make_shared<Form>(state.form);
  const StagingId id = services_.next_staging_id();
  const Form over{.base = {}, .base_length = size, .staging = id, .map = BlockMap(BlockMap::blocks_of(size)),
                  .sealed = before};
  services_.staging.create(id);
  try {
    if (is_copied) copy(over, std::min(size, kept_bytes));
    services_.staging.truncate(id, size);
  } catch (...) {
    services_.staging.remove(id);
    throw;
  }
  Form form = is_copied ? Form{.base = {}, .base_length = 0, .staging = id} : over;
  restructure(state);
  state.form = std::move(form);
  state.base_source.reset();
}

void Content::make_staging(State& state, std::uint64_t size_bytes) {
  const StagingId id = services_.next_staging_id();
  services_.staging.create(id);
  if (size_bytes > 0) services_.staging.truncate(id, size_bytes);
  restructure(state);
  state.form.staging = id;
  state.form.map = BlockMap(BlockMap::blocks_of(state.form.base_length));
}

void Content::copy_block(State& state, std::uint64_t block) {
  const std::uint64_t begin = block * BlockMap::kBlockSize;
  const std::uint64_t end = std::min(begin + BlockMap::kBlockSize, state.form.base_length);
  std::vector<std::byte> buffer(end - begin);
  if (!state.base_source)
    state.base_source = escrow::session::base_source(state.form, services_.objects, services_.staging);
  if (state.base_source->read(begin, buffer) < buffer.size())
    throw Error(Errc::input_output, "a blob is shorter than its recorded size");
  services_.staging.write_copy(state.form.staging, begin, buffer);
  restructure(state);
  state.form.map.set(block);
}

void Content::fill(State& state, std::uint64_t begin, std::uint64_t end, std::uint64_t skip_begin,
                   std::uint64_t skip_end) {
  const std::uint64_t last = std::min(BlockMap::blocks_of(end), state.form.map.blocks());
  for (std::uint64_t block = begin / BlockMap::kBlockSize; block < last; ++block) {
    if (state.form.map.holds(block)) continue;
    const std::uint64_t block_begin = block * BlockMap::kBlockSize;
    const std::uint64_t block_end = std::min(block_begin + BlockMap::kBlockSize, state.form.base_length);
    if (skip_begin <= block_begin && block_end <= skip_end) continue;  // marked once it has been overwritten
    copy_block(state, block);
  }
}

void Content::drop_base_when_complete(State& state) {
  if (!state.form.staging || !state.form.has_base() || !state.form.map.complete()) return;
  restructure(state);
  state.form.base = {};
  state.form.sealed.reset();
  state.form.base_length = 0;
  state.form.map = {};
  state.base_source.reset();
}

// The blocks of [begin, end) are whole in the staging file now.
void Content::mark_held(State& state, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t last = std::min(BlockMap::blocks_of(end), state.form.map.blocks());
  for (std::uint64_t block = begin / BlockMap::kBlockSize; block < last; ++block) {
    if (state.form.map.holds(block)) continue;
    restructure(state);
    state.form.map.set(block);
  }
  drop_base_when_complete(state);
}

void Content::prepare_write(State& state, std::uint64_t offset, std::uint64_t length) {
  unseal(state);
  if (!state.form.staging) make_staging(state, state.form.base_length);
  if (!state.form.has_base()) return;
  const bool whole = state.form.base_length <= kCopyWholeLimit;
  fill(state, whole ? 0 : offset, whole ? state.form.base_length : offset + length, offset, offset + length);
}

void Content::changed() { version_.fetch_add(1); }

void Content::lose(std::uint64_t offset, std::uint64_t size_bytes) {
  auto lost = lost_.lock();
  lost->add(offset, offset + size_bytes);
  has_lost_ = true;
}

void Content::set_lost(LostBytes lost) {
  auto now = lost_.lock();
  *now = std::move(lost);
  has_lost_ = !now->empty();
}

LostBytes Content::lost() const { return has_lost_ ? *lost_.lock() : LostBytes(); }

void Content::found_again(std::uint64_t begin, std::uint64_t end) {
  if (!has_lost_) return;
  auto lost = lost_.lock();
  lost->remove(begin, end);
  has_lost_ = !lost->empty();
}

void Content::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  {
    const auto state = state_.lock_shared();
    if (only_staged(*state) && !is_sealed(*state)) {
      services_.staging.write(state->form.staging, offset, bytes);
      changed();
      found_again(offset, offset + bytes.size());
      return;
    }
  }
  auto state = state_.lock();
  const std::uint64_t end = offset + bytes.size();
  prepare_write(*state, offset, bytes.size());
  services_.staging.write(state->form.staging, offset, bytes);
  changed();
  found_again(offset, end);
  mark_held(*state, offset, end);
}

std::uint64_t Content::holes() const {
  const auto state = state_.lock_shared();
  if (!state->form.staging) return 0;
  const StagingUsage usage = services_.staging.usage(state->form.staging);
  const std::uint64_t held = state->form.base_length + usage.blocks * kBytesOfABlock;
  return usage.size_bytes > held ? usage.size_bytes - held : 0;
}

std::uint64_t Content::growth(std::uint64_t offset, std::uint64_t length) const {
  const auto state = state_.lock_shared();
  const Form& form = state->form;
  const std::uint64_t end = offset + length, size = size_of(*state);
  std::uint64_t growth = end > size ? end - size : 0;
  if (is_sealed(*state)) {
    if (size <= kCopyWholeLimit || form.depth() >= kMostSealed) return growth + size;
    const std::uint64_t touched = BlockMap::blocks_of(std::min(end, size));
    const std::uint64_t first = offset / BlockMap::kBlockSize;
    return growth + (touched > first ? (touched - first) * BlockMap::kBlockSize : 0);
  }
  if (form.base_length <= kCopyWholeLimit) return only_staged(*state) ? growth : growth + form.base_length;
  const std::uint64_t last = std::min(BlockMap::blocks_of(end), BlockMap::blocks_of(form.base_length));
  for (std::uint64_t block = offset / BlockMap::kBlockSize; block < last; ++block)
    if (!form.staging || !form.map.holds(block)) growth += BlockMap::kBlockSize;
  return growth;
}

void Content::truncate(std::uint64_t size_bytes) {
  auto state = state_.lock();
  const std::uint64_t before = size_of(*state);
  if (size_bytes == 0 && before > 0) set_replaces_others();
  unseal(*state, size_bytes);
  if (size_bytes < state->form.base_length) {
    restructure(*state);
    state->form.base_length = size_bytes;
    state->form.map.shrink(BlockMap::blocks_of(size_bytes));
    if (size_bytes == 0) {
      state->form.base = {};
      state->form.sealed.reset();
      state->base_source.reset();
    }
  }
  if (!state->form.staging && size_bytes > state->form.base_length) make_staging(*state, 0);
  if (state->form.staging) {
    services_.staging.truncate(state->form.staging, size_bytes);
    drop_base_when_complete(*state);
  }
  changed();
  found_again(size_bytes, std::numeric_limits<std::uint64_t>::max());
}

void Content::allocate(AllocateMode mode, std::uint64_t offset, std::uint64_t length) {
  auto state = state_.lock();
  const bool zeroes = mode == AllocateMode::punch_hole || mode == AllocateMode::zero_range ||
                      mode == AllocateMode::zero_range_keep_size;
  const std::uint64_t end = offset + length;
  unseal(*state);
  if (!state->form.staging) make_staging(*state, state->form.base_length);
  if (state->form.has_base())
    fill(*state, offset, end, zeroes ? offset : 0, zeroes ? end : 0);
  const StagingId id = state->form.staging;
  switch (mode) {
    case AllocateMode::reserve: services_.staging.allocate(id, offset, length, true); break;
    case AllocateMode::reserve_keep_size: services_.staging.allocate(id, offset, length, false); break;
    case AllocateMode::punch_hole: services_.staging.punch_hole(id, offset, length); break;
    case AllocateMode::zero_range: services_.staging.zero_range(id, offset, length, true); break;
    case AllocateMode::zero_range_keep_size: services_.staging.zero_range(id, offset, length, false); break;
  }
  changed();
  if (zeroes) found_again(offset, end);
  mark_held(*state, offset, end);
}

std::optional<std::uint64_t> Content::seek(std::uint64_t offset, SeekTarget target) const {
  const auto state = state_.lock_shared();
  if (only_staged(*state)) return services_.staging.seek(state->form.staging, offset, target);
  return seek_all_data(size_of(*state), offset, target);  // part of the bytes are a base's
}

std::unique_ptr<RawFile> Content::open_raw(bool write) {
  auto state = state_.lock();
  if (!state->form.staging && write && state->form.base_length == 0) {
    make_staging(*state, 0);
    drop_base_when_complete(*state);
  }
  // The kernel could not be told that the first write after a savepoint makes another file.
  if (!only_staged(*state) || is_sealed(*state)) return nullptr;
  const StagingId id = state->form.staging;
  const bool had_file = services_.staging.usage(id).modified != Timestamp{};
  auto raw = services_.staging.raw(id);
  if (!raw) return raw;
  // A file that was only just made for these bytes is as new as it is without having been changed.
  if (was_exposed() ? !had_file : write) noticed_ns_ = nanoseconds(services_.staging.usage(id).modified);
  if (!write) {
    state->raw_readers += 1;
    return raw;
  }
  state->raw_writers += 1;
  exposed_ = true;
  changed();
  return raw;
}

void Content::close_raw(bool write) {
  if (!write) {
    state_.lock()->raw_readers -= 1;
    return;
  }
  state_.lock()->raw_writers -= 1;
  settle();
}

bool Content::is_open_raw() const {
  const auto state = state_.lock_shared();
  return state->raw_readers + state->raw_writers > 0;
}

void Content::was_raw(const Timestamp& last_seen) {
  noticed_ns_ = nanoseconds(last_seen);
  exposed_ = true;
}

bool Content::settle() {
  auto state = state_.lock();
  if (!exposed_) return true;
  if (state->raw_writers > 0) return false;
  if (state->form.staging && services_.staging.has_writers(state->form.staging)) return false;
  changed();
  exposed_ = false;
  return true;
}

bool Content::would_notice(const Timestamp& modified) const { return nanoseconds(modified) > noticed_ns_.load(); }

bool Content::notice(const Timestamp& modified) {
  std::int64_t known = noticed_ns_.load();
  while (nanoseconds(modified) > known)
    if (noticed_ns_.compare_exchange_weak(known, nanoseconds(modified))) return true;
  return false;
}

std::optional<ObjectId> Content::known_blob(BlobKind kind) const {
  const auto state = state_.lock_shared();
  if (state->known_version != version_.load() || state->known_kind != kind || exposed_) return std::nullopt;
  return state->known_blob;
}

void Content::remember_blob(std::uint64_t version, const ObjectId& blob, BlobKind kind) {
  auto state = state_.lock();
  state->known_kind = kind;
  state->known_version = version;
  state->known_blob = blob;
}

}  // namespace escrow::session
