#include "tests/support/fake_staging.h"

#include <algorithm>
#include <string>
#include <utility>

#include "session/base/error.h"

namespace escrow::support {

using session::Errc;
using session::Error;
using session::SeekTarget;
using session::StagingId;

FakeStaging::File& FakeStaging::file(State& state, StagingId id) {
  const auto found = state.files.find(id);
  if (found == state.files.end())
    throw Error(Errc::input_output, "staging file " + std::to_string(id.value) + " does not exist");
  return found->second;
}

FakeStaging::Block& FakeStaging::block_for_write(State& state, File& file, std::uint64_t index) {
  const auto found = file.blocks.find(index);
  if (found != file.blocks.end()) return found->second;
  if (state.block_limit) {
    std::uint64_t used = 0;
    for (const auto& [id, other] : state.files) used += other.blocks.size();
    if (used >= *state.block_limit) throw Error(Errc::no_space, "the disk of the staging files is full");
  }
  return file.blocks.emplace(index, Block{}).first->second;
}

// Makes zeroes; a block that lies wholly in the range becomes a hole.
void FakeStaging::zero(File& file, std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t end = offset + length;
  for (auto block = file.blocks.lower_bound(offset / kBlock); block != file.blocks.end();) {
    const std::uint64_t start = block->first * kBlock;
    if (start >= end) break;
    if (start >= offset && start + kBlock <= end) {
      block = file.blocks.erase(block);
      continue;
    }
    const std::uint64_t from = std::max(start, offset) - start;
    const std::uint64_t to = std::min(start + kBlock, end) - start;
    std::fill(block->second.begin() + static_cast<std::ptrdiff_t>(from),
              block->second.begin() + static_cast<std::ptrdiff_t>(to), std::byte{0});
    ++block;
  }
}

void FakeStaging::create(StagingId id) {
  use_power();
  if (!state_.lock()->files.try_emplace(id).second)
    throw Error(Errc::input_output, "staging file " + std::to_string(id.value) + " exists already");
}

void FakeStaging::remove(StagingId id) {
  use_power();
  auto state = state_.lock();
  state->files.erase(id);
  state->durable.erase(id);
  state->durable_names.erase(id);
  state->damaged.erase(id);
}

std::vector<StagingId> FakeStaging::list() const {
  auto state = state_.lock();
  std::vector<StagingId> ids;
  for (const auto& [id, file] : state->files) ids.push_back(id);
  return ids;
}

session::StagingUsage FakeStaging::usage(StagingId id) const {
  auto state = state_.lock();
  const File& found = file(*state, id);
  return {found.size, found.blocks.size() * (kBlock / 512), {}};
}

std::size_t FakeStaging::read(StagingId id, std::uint64_t offset, std::span<std::byte> out) const {
  auto state = state_.lock();
  const File& found = file(*state, id);
  if (offset >= found.size) return 0;
  const std::size_t count = std::min<std::uint64_t>(out.size(), found.size - offset);
  for (std::size_t done = 0; done < count;) {
    const std::uint64_t within = (offset + done) % kBlock;
    const std::size_t part = std::min<std::uint64_t>(count - done, kBlock - within);
    const auto block = found.blocks.find((offset + done) / kBlock);
    if (block == found.blocks.end())
      std::fill_n(out.data() + done, part, std::byte{0});
    else
      std::copy_n(block->second.data() + within, part, out.data() + done);
    done += part;
  }
  return count;
}

void FakeStaging::write(StagingId id, std::uint64_t offset, std::span<const std::byte> bytes) {
  auto state = state_.lock();
  File& found = file(*state, id);
  for (std::size_t done = 0; done < bytes.size();) {
    const std::uint64_t within = (offset + done) % kBlock;
    const std::size_t part = std::min<std::uint64_t>(bytes.size() - done, kBlock - within);
    use_power();
    Block& block = block_for_write(*state, found, (offset + done) / kBlock);
    std::copy_n(bytes.data() + done, part, block.data() + within);
    done += part;
    found.size = std::max(found.size, offset + done);
  }
}

void FakeStaging::truncate(StagingId id, std::uint64_t size_bytes) {
  use_power();
  auto state = state_.lock();
  File& found = file(*state, id);
  if (size_bytes < found.size) {
    const std::uint64_t end = (found.size + kBlock - 1) / kBlock * kBlock;
    zero(found, size_bytes, end - size_bytes);
  }
  found.size = size_bytes;
  if (size_bytes == 0) state->damaged.erase(id);
}

void FakeStaging::allocate(StagingId id, std::uint64_t offset, std::uint64_t length, bool extend) {
  use_power();
  auto state = state_.lock();
  File& found = file(*state, id);
  if (length == 0) throw Error(Errc::invalid_argument, "an allocation of no bytes");
  for (std::uint64_t index = offset / kBlock; index * kBlock < offset + length; ++index)
    block_for_write(*state, found, index);
  if (extend) found.size = std::max(found.size, offset + length);
}

void FakeStaging::punch_hole(StagingId id, std::uint64_t offset, std::uint64_t length) {
  use_power();
  auto state = state_.lock();
  zero(file(*state, id), offset, length);
}

void FakeStaging::zero_range(StagingId id, std::uint64_t offset, std::uint64_t length, bool extend) {
  use_power();
  auto state = state_.lock();
  File& found = file(*state, id);
  zero(found, offset, length);
  if (extend) found.size = std::max(found.size, offset + length);
}

std::optional<std::uint64_t> FakeStaging::seek(StagingId id, std::uint64_t offset, SeekTarget target) const {
  auto state = state_.lock();
  const File& found = file(*state, id);
  if (offset >= found.size) return std::nullopt;
  for (std::uint64_t position = offset; position < found.size; position = (position / kBlock + 1) * kBlock)
    if (found.blocks.contains(position / kBlock) == (target == SeekTarget::data)) return position;
  if (target == SeekTarget::data) return std::nullopt;
  return found.size;
}

void FakeStaging::sync(StagingId id) {
  use_power();
  auto state = state_.lock();
  if (std::exchange(state->fails_next_sync, false)) state->damaged.insert(id);
  if (state->damaged.contains(id)) throw Error(Errc::input_output, "the disk failed to sync a staging file");
  state->durable[id] = file(*state, id);
  state->durable_names.insert(id);
  ++state->syncs;
}

session::StagingArea::Lost FakeStaging::lost(StagingId id) const {
  Lost lost;
  if (state_.lock()->damaged.contains(id)) lost.written.add(0, session::ByteRanges::kEnd);
  return lost;
}

void FakeStaging::sync_directory() {
  use_power();
  auto state = state_.lock();
  for (const auto& [id, file] : state->files) state->durable_names.insert(id);
}

void FakeStaging::sync_all() {
  sync_directory();
  std::vector<StagingId> alone;
  {
    auto state = state_.lock();
    if (std::exchange(state->fails_next_sync_of_all, false)) {
      for (const auto& [id, file] : state->files) alone.push_back(id);
    } else {
      state->durable = state->files;
      ++state->syncs;
    }
  }
  std::optional<Error> failure;
  for (const StagingId id : alone) {
    try {
      sync(id);
    } catch (const Error& error) {
      failure = error;
    }
  }
  if (failure) throw *failure;
}

std::uint64_t FakeStaging::held_bytes() const {
  auto state = state_.lock();
  std::uint64_t blocks = 0;
  for (const auto& [id, file] : state->files) blocks += file.blocks.size();
  return blocks * kBlock;
}

session::StagingArea::FreeSpace FakeStaging::free_space() const {
  auto state = state_.lock();
  std::uint64_t used = 0;
  for (const auto& [id, file] : state->files) used += file.blocks.size();
  const std::uint64_t total = state->block_limit.value_or(1 << 20);
  const std::uint64_t free = total - std::min(total, used);
  return {kBlock, total, free, free, 1 << 20, (1 << 20) - state->files.size()};
}

// Of a file of which a part is on disk: each block, and the size, is the one that is there or the one that was written.
FakeStaging::File FakeStaging::mixed(const File& durable, const File& written, const std::function<bool()>& survives) {
  File result;
  result.size = survives() ? written.size : durable.size;
  std::set<std::uint64_t> indexes;
  for (const File* file : {&durable, &written})
    for (const auto& [index, block] : file->blocks) indexes.insert(index);
  for (const std::uint64_t index : indexes) {
    if (index * kBlock >= result.size) continue;
    const File& from = survives() ? written : durable;
    const auto found = from.blocks.find(index);
    if (found != from.blocks.end()) result.blocks.insert(*found);
  }
  // Behind the end there is nothing.
  if (const auto last = result.blocks.find(result.size / kBlock); last != result.blocks.end())
    std::fill(last->second.begin() + static_cast<long>(result.size % kBlock), last->second.end(), std::byte{0});
  return result;
}

void FakeStaging::crash(const std::function<bool()>& survives) {
  auto state = state_.lock();
  std::map<StagingId, File> survivors;
  std::set<StagingId> names;
  for (const auto& [id, file] : state->files) {
    if (!state->durable_names.contains(id) && !survives()) continue;
    survivors[id] = mixed(state->durable[id], file, survives);
    names.insert(id);
  }
  state->files = survivors;
  state->durable = std::move(survivors);
  state->durable_names = std::move(names);
  state->damaged.clear();
  ++state->era;
}

void FakeStaging::write_back(const std::function<bool()>& chosen) {
  auto state = state_.lock();
  for (const auto& [id, file] : state->files) {
    if (chosen()) state->durable_names.insert(id);
    state->durable[id] = mixed(state->durable[id], file, chosen);
  }
}

void FakeStaging::limit_blocks(std::optional<std::uint64_t> blocks_of_4096) {
  state_.lock()->block_limit = blocks_of_4096;
}

std::uint64_t FakeStaging::syncs() const { return state_.lock()->syncs; }

void FakeStaging::share(const std::vector<StagingId>& files, FakeStaging& heir) const {
  const auto state = state_.lock();
  auto other = heir.state_.lock();
  other->era = state->era;
  for (const StagingId id : files) {
    if (const auto found = state->files.find(id); found != state->files.end()) other->files.insert(*found);
    if (const auto found = state->durable.find(id); found != state->durable.end()) other->durable.insert(*found);
    other->durable_names.insert(id);
  }
}

}  // namespace escrow::support
