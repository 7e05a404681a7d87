#include "storage/pack_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "storage/durable_file.h"
#include "storage/zlib_stream.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;
using session::ObjectId;

constexpr std::size_t kFanoutBytes = 256 * 4;
constexpr std::size_t kHeaderBytes = 8;

std::uint32_t big_endian_32(const std::uint8_t* at) {
  return std::uint32_t{at[0]} << 24 | std::uint32_t{at[1]} << 16 | std::uint32_t{at[2]} << 8 | at[3];
}

std::uint64_t size_of(const UniqueFd& fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw system_error(errno, "read " + path);
  return static_cast<std::uint64_t>(status.st_size);
}

[[noreturn]] void throw_damaged(const std::string& path, const char* what) {
  throw Error(Errc::damaged_repository, "the file " + path + " is damaged: " + what);
}

}  // namespace

PackFile::PackFile(const std::string& stem) : stem_(stem) {
  const std::string index_path = stem + ".idx";
  const UniqueFd index = open_or_throw(AT_FDCWD, index_path.c_str(), O_RDONLY, 0, "open " + index_path);
  pack_ = open_or_throw(AT_FDCWD, (stem + ".pack").c_str(), O_RDONLY, 0, "open " + stem + ".pack");
  pack_size_ = size_of(pack_, stem + ".pack");
  index_size_ = static_cast<std::size_t>(size_of(index, index_path));
  if (pack_size_ < 12 + ObjectId::kSize) throw_damaged(stem + ".pack", "it is too short");
  if (index_size_ < kHeaderBytes + kFanoutBytes + 2 * ObjectId::kSize) throw_damaged(index_path, "it is too short");
  void* mapped = ::mmap(nullptr, index_size_, PROT_READ, MAP_SHARED, index.get(), 0);
  if (mapped == MAP_FAILED) throw system_error(errno, "map " + index_path);
  index_ = static_cast<const std::uint8_t*>(mapped);
  count_ = big_endian_32(index_ + kHeaderBytes + kFanoutBytes - 4);
  const std::uint64_t least = kHeaderBytes + kFanoutBytes + std::uint64_t{count_} * 28 + 2 * ObjectId::kSize;
  if (std::memcmp(index_, "\377tOc\0\0\0\2", 8) != 0 || index_size_ < least) {
    ::munmap(mapped, index_size_);
    throw_damaged(index_path, "it is not a pack index of version 2");
  }
}

PackFile::~PackFile() { ::munmap(const_cast<std::uint8_t*>(index_), index_size_); }

ObjectId PackFile::id_at(std::uint32_t index) const {
  return ObjectId::from_raw(index_ + kHeaderBytes + kFanoutBytes + std::size_t{index} * ObjectId::kSize);
}

std::uint32_t PackFile::crc_at(std::uint32_t index) const {
  return big_endian_32(index_ + kHeaderBytes + kFanoutBytes + std::size_t{count_} * 20 + std::size_t{index} * 4);
}

std::uint64_t PackFile::offset_at(std::uint32_t index) const {
  const std::uint8_t* small = index_ + kHeaderBytes + kFanoutBytes + std::size_t{count_} * 24;
  const std::uint32_t offset = big_endian_32(small + std::size_t{index} * 4);
  if ((offset & 0x80000000u) == 0) return offset;
  const std::uint8_t* large = small + std::size_t{count_} * 4 + std::size_t{offset & 0x7fffffffu} * 8;
  if (large + 8 > index_ + index_size_) throw_damaged(stem_ + ".idx", "an offset lies outside it");
  return std::uint64_t{big_endian_32(large)} << 32 | big_endian_32(large + 4);
}

std::optional<std::uint32_t> PackFile::find(const ObjectId& id) const {
  const std::uint8_t* fanout = index_ + kHeaderBytes;
  const std::uint8_t first = id.bytes()[0];
  std::uint32_t low = first == 0 ? 0 : big_endian_32(fanout + (first - 1u) * 4);
  std::uint32_t high = std::min(big_endian_32(fanout + first * 4u), count_);
  const std::uint8_t* ids = fanout + kFanoutBytes;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    const int order = std::memcmp(ids + std::size_t{middle} * ObjectId::kSize, id.bytes().data(), ObjectId::kSize);
    if (order == 0) return middle;
    if (order < 0) low = middle + 1;
    else high = middle;
  }
  return std::nullopt;
}

EntryHeader PackFile::header_at(std::uint64_t offset) const {
  std::uint8_t bytes[48] = {};
  const ssize_t read = ::pread(pack_.get(), bytes, sizeof bytes, static_cast<off_t>(offset));
  if (read < 0) throw system_error(errno, "read " + stem_ + ".pack");
  if (read < 24 || offset >= end()) throw_damaged(stem_ + ".pack", "an entry lies outside it");
  std::size_t at = 0;
  EntryHeader header{static_cast<ObjectType>((bytes[0] >> 4) & 7), bytes[0] & 0x0fu, 0, 0, {}};
  for (unsigned shift = 4; (bytes[at++] & 0x80) != 0; shift += 7) {
    if (shift > 57) throw_damaged(stem_ + ".pack", "an entry's size is not valid");
    header.size_bytes |= std::uint64_t{bytes[at] & 0x7fu} << shift;
  }
  if (header.type == ObjectType::reference_delta) {
    header.base_id = ObjectId::from_raw(bytes + at);
    at += ObjectId::kSize;
  } else if (header.type == ObjectType::offset_delta) {
    std::uint64_t distance = bytes[at] & 0x7fu;
    while ((bytes[at++] & 0x80) != 0 && at < 24) distance = ((distance + 1) << 7) | (bytes[at] & 0x7fu);
    if (distance >= offset) throw_damaged(stem_ + ".pack", "a delta's base lies outside it");
    header.base_offset = offset - distance;
  }
  header.data_offset = offset + at;
  return header;
}

std::vector<std::string> ObjectDirectory::directories() const {
  std::vector<std::string> found{path_};
  for (std::size_t i = 0; i < found.size() && found.size() < 32; ++i) {
    std::ifstream in(found[i] + "/info/alternates");
    for (std::string line; std::getline(in, line);) {
      if (line.empty() || line[0] == '#') continue;
      const std::string path = line[0] == '/' ? line : found[i] + "/" + line;
      if (std::find(found.begin(), found.end(), path) == found.end()) found.push_back(path);
    }
  }
  return found;
}

void ObjectDirectory::scan(Packs& packs) const {
  packs.stamp = stamp();
  std::set<std::string> stems;
  for (const std::string& directory : directories()) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory + "/pack", error)) {
      const fs::path& path = entry.path();
      if (path.extension() == ".idx") stems.insert(path.parent_path() / path.stem());
    }
  }
  std::vector<std::shared_ptr<const PackFile>> open;
  for (const auto& pack : packs.open) {
    if (stems.erase(pack->stem()) > 0) open.push_back(pack);
  }
  for (const std::string& stem : stems) {
    try {
      open.push_back(std::make_shared<const PackFile>(stem));
    } catch (const Error&) {
      // Version 1, damaged, or gone since: libgit2 reads what it can of it, and names what it cannot.
    }
  }
  packs.open = std::move(open);
}

std::vector<std::int64_t> ObjectDirectory::stamp() const {
  std::vector<std::int64_t> times;
  for (const std::string& directory : directories()) {
    struct stat status {};
    ::stat((directory + "/pack").c_str(), &status);
    times.push_back(std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec);
  }
  return times;
}

std::optional<ObjectDirectory::Place> ObjectDirectory::find(const ObjectId& id) const {
  {
    auto packs = packs_.lock();
    if (packs->stamp != stamp()) scan(*packs);
    for (const auto& pack : packs->open) {
      if (const auto index = pack->find(id)) return Place{pack, *index, {}};
    }
  }
  const std::string hex = id.hex();
  for (const std::string& directory : directories()) {
    std::string path = directory + "/" + hex.substr(0, 2) + "/" + hex.substr(2);
    if (::access(path.c_str(), F_OK) == 0) return Place{nullptr, 0, std::move(path)};
  }
  return std::nullopt;
}

bool ObjectDirectory::is_in(const std::vector<std::shared_ptr<const PackFile>>& packs,
                            const session::ObjectId& id) const {
  for (const auto& pack : packs)
    if (pack->find(id)) return true;
  const std::string hex = id.hex();
  return ::access((path_ + "/" + hex.substr(0, 2) + "/" + hex.substr(2)).c_str(), F_OK) == 0;
}

void ObjectDirectory::close_what_is_gone() const {
  auto packs = packs_.lock();
  if (!packs->open.empty()) scan(*packs);
}

std::vector<std::shared_ptr<const PackFile>> ObjectDirectory::packs() const {
  auto packs = packs_.lock();
  scan(*packs);
  return packs->open;
}

namespace {

void drain(InflateReader& reader, std::uint64_t expected, const ObjectId& id,
           const std::function<void(std::span<const std::byte>)>& visit) {
  std::vector<std::byte> buffer(std::size_t{256} << 10);
  std::uint64_t total = 0;
  while (const std::size_t count = reader.read(buffer)) {
    total += count;
    visit(std::span<const std::byte>(buffer).first(count));
  }
  if (total != expected) {
    throw Error(Errc::input_output, "the blob " + id.hex() + " is damaged: it has " + std::to_string(total) +
                                        " bytes instead of " + std::to_string(expected));
  }
}

}  // namespace

bool stream_blob(const ObjectDirectory::Place& place, const ObjectId& id,
                 const std::function<void(std::span<const std::byte>)>& visit) {
  const std::string what = "the blob " + id.hex();
  if (place.pack) {
    const EntryHeader header = place.pack->header_at(place.pack->offset_at(place.index));
    if (header.type != ObjectType::blob) return false;
    InflateReader reader(place.pack->fd(), header.data_offset, what);
    drain(reader, header.size_bytes, id, visit);
    return true;
  }
  const UniqueFd file = open_or_throw(AT_FDCWD, place.loose_path.c_str(), O_RDONLY, 0, "open " + place.loose_path);
  InflateReader reader(file.get(), 0, what);
  std::string header;
  for (std::byte byte{}; header.size() < 32 && reader.read(std::span(&byte, 1)) == 1 && byte != std::byte{0};) {
    header.push_back(static_cast<char>(byte));
  }
  if (!header.starts_with("blob ")) throw Error(Errc::input_output, what + " is damaged: its file holds no blob");
  drain(reader, std::strtoull(header.c_str() + 5, nullptr, 10), id, visit);
  return true;
}

}  // namespace escrow::storage
