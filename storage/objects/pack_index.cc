#include "storage/objects/pack_index.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "storage/disk/durable_file.h"

namespace escrow::storage {
namespace {

using session::Errc;
using session::Error;
using session::ObjectId;

constexpr std::uint64_t kFanoutAt = 8;
constexpr std::uint64_t kIdsAt = kFanoutAt + 256 * 4;
constexpr std::uint64_t kTrailersBytes = 2 * ObjectId::kSize;
// 9,000 objects: two days of commits.
constexpr std::uint64_t kWholeIndexBytes = std::uint64_t{256} << 10;
// As many ids as one read of a large index brings.
constexpr std::uint32_t kIdsAtOnce = 400;

std::uint32_t big_endian(const std::uint8_t* at) {
  return std::uint32_t{at[0]} << 24 | std::uint32_t{at[1]} << 16 | std::uint32_t{at[2]} << 8 | at[3];
}

[[noreturn]] void throw_damaged_index(const std::string& path, const char* what) {
  throw Error(Errc::damaged_repository, "the file " + path + " is damaged: " + what);
}

// The first of `count` sorted ids that is not less than `id`.
std::uint32_t first_not_less(const std::uint8_t* ids, std::uint32_t count, const ObjectId& id) {
  std::uint32_t low = 0, high = count;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (std::memcmp(ids + std::size_t{middle} * ObjectId::kSize, id.bytes().data(), ObjectId::kSize) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace

PackIndex::PackIndex(const std::string& path)
    : path_(path), fd_(open_or_throw(AT_FDCWD, path.c_str(), O_RDONLY, 0, "open " + path)) {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) throw system_error(errno, "read " + path_);
  size_bytes_ = static_cast<std::uint64_t>(status.st_size);
  if (size_bytes_ < kIdsAt + kTrailersBytes) throw_damaged_index(path_, "it is too short");
  if (size_bytes_ <= kWholeIndexBytes) {
    std::vector<std::uint8_t> whole(static_cast<std::size_t>(size_bytes_));
    read(0, whole);
    memory_ = std::move(whole);
    fd_.reset();
  }
  std::array<std::uint8_t, kIdsAt> head{};
  read(0, head);
  if (std::memcmp(head.data(), "\377tOc\0\0\0\2", kFanoutAt) != 0)
    throw_damaged_index(path_, "it is not a pack index of version 2");
  for (std::size_t first = 0; first < 256; ++first) {
    fanout_[first + 1] = big_endian(head.data() + kFanoutAt + first * 4);
    if (fanout_[first + 1] < fanout_[first]) throw_damaged_index(path_, "its table of first bytes is not in order");
  }
  // 20 bytes of id, 4 of checksum and 4 of offset each.
  if (size_bytes_ < kIdsAt + std::uint64_t{count()} * 28 + kTrailersBytes)
    throw_damaged_index(path_, "it is not a pack index of version 2");
}

void PackIndex::read(std::uint64_t offset, std::span<std::uint8_t> out) const {
  if (!memory_.empty()) {
    std::memcpy(out.data(), memory_.data() + offset, out.size());
    return;
  }
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = ::pread(fd_.get(), out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(errno, "read " + path_);
    if (count == 0) throw_damaged_index(path_, "it became shorter");
    done += static_cast<std::size_t>(count);
  }
}

std::uint32_t PackIndex::number_at(std::uint64_t offset) const {
  std::uint8_t bytes[4];
  read(offset, bytes);
  return big_endian(bytes);
}

ObjectId PackIndex::id_at(std::uint32_t index) const {
  std::uint8_t bytes[ObjectId::kSize];
  read(kIdsAt + std::uint64_t{index} * ObjectId::kSize, bytes);
  return ObjectId::from_raw(bytes);
}

std::uint32_t PackIndex::crc_at(std::uint32_t index) const {
  return number_at(kIdsAt + std::uint64_t{count()} * 20 + std::uint64_t{index} * 4);
}

std::uint64_t PackIndex::offset_at(std::uint32_t index) const {
  const std::uint64_t small = kIdsAt + std::uint64_t{count()} * 24;
  const std::uint32_t offset = number_at(small + std::uint64_t{index} * 4);
  if ((offset & 0x80000000u) == 0) return offset;
  const std::uint64_t large = small + std::uint64_t{count()} * 4 + std::uint64_t{offset & 0x7fffffffu} * 8;
  if (large + 8 + kTrailersBytes > size_bytes_) throw_damaged_index(path_, "an offset lies outside it");
  return std::uint64_t{number_at(large)} << 32 | number_at(large + 4);
}

ObjectId PackIndex::pack_trailer() const {
  std::uint8_t bytes[ObjectId::kSize];
  read(size_bytes_ - kTrailersBytes, bytes);
  return ObjectId::from_raw(bytes);
}

// Ids are spread evenly, so that the bytes after the first say where among its like an id stands: the first read is
// mostly the last. Every second one halves the range all the same, whatever the ids are like.
std::optional<std::uint32_t> PackIndex::find(const ObjectId& id) const {
  std::uint32_t low = fanout_[id.bytes()[0]], high = fanout_[id.bytes()[0] + 1u];
  if (!memory_.empty()) {
    const std::uint8_t* ids = memory_.data() + kIdsAt;
    const std::uint32_t at = low + first_not_less(ids + std::size_t{low} * ObjectId::kSize, high - low, id);
    if (at == high || std::memcmp(ids + std::size_t{at} * ObjectId::kSize, id.bytes().data(), ObjectId::kSize) != 0)
      return std::nullopt;
    return at;
  }
  std::uint8_t ids[std::size_t{kIdsAtOnce} * ObjectId::kSize];
  for (bool is_guess = true; low < high; is_guess = !is_guess) {
    std::uint32_t first = low;
    const std::uint32_t count = std::min(high - low, kIdsAtOnce);
    if (high - low > kIdsAtOnce) {
      const double part = is_guess ? big_endian(id.bytes().data() + 1) / 4294967296.0 : 0.5;
      // Of all that begin with the same byte, whatever of them is left.
      const std::uint32_t from = is_guess ? fanout_[id.bytes()[0]] : low;
      const std::uint32_t to = is_guess ? fanout_[id.bytes()[0] + 1u] : high;
      const auto middle = from + static_cast<std::uint32_t>(part * (to - from));
      first = std::clamp(middle < kIdsAtOnce / 2 ? 0 : middle - kIdsAtOnce / 2, low, high - kIdsAtOnce);
    }
    read(kIdsAt + std::uint64_t{first} * ObjectId::kSize, std::span(ids).first(std::size_t{count} * ObjectId::kSize));
    const std::uint32_t at = first_not_less(ids, count, id);
    if (at < count && std::memcmp(ids + std::size_t{at} * ObjectId::kSize, id.bytes().data(), ObjectId::kSize) == 0)
      return first + at;
    if (at == 0) high = first;
    else if (at == count) low = first + count;
    else return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace escrow::storage
