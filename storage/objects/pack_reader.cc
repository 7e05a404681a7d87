#include "storage/objects/pack_reader.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <set>
#include <sstream>
#include <utility>

#include "storage/disk/durable_file.h"
#include "storage/objects/zlib_stream.h"

namespace escrow::storage {
namespace {

namespace fs = std::filesystem;
using session::Errc;
using session::Error;
using session::ObjectId;

constexpr std::size_t kPackHeaderBytes = 12;
// The header of the largest entry; what follows is not looked at.
constexpr std::size_t kEntryHeaderBytes = 48;
// The clock that stamps files ticks at least 100 times a second; a disk over the network has its own.
constexpr std::int64_t kTickNs = 50'000'000;

std::uint32_t big_endian_32(const std::uint8_t* at) {
  return std::uint32_t{at[0]} << 24 | std::uint32_t{at[1]} << 16 | std::uint32_t{at[2]} << 8 | at[3];
}

std::uint64_t next_serial() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

[[noreturn]] void throw_damaged(const std::string& path, const char* what) {
  throw Error(Errc::damaged_repository, "the file " + path + " is damaged: " + what);
}

}  // namespace

PackFile::PackFile(const std::string& stem)
    : stem_(stem), index_(std::make_shared<const PackIndex>(stem + ".idx")), serial_(next_serial()) {
  if (::access((stem + ".pack").c_str(), F_OK) != 0) throw system_error(errno, "open " + stem + ".pack");
}

PackFile::PackFile(const std::shared_ptr<const PackFile>& other)
    : stem_(other->stem_), index_(other->index_), serial_(next_serial()) {}

const PackFile::Opened& PackFile::opened() const {
  std::call_once(once_, [this] {
    const std::string path = stem_ + ".pack";
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd && errno == ENOENT) throw Error(Errc::not_found, "the file " + path + " was removed");
    if (!fd) throw system_error(errno, "open " + path);
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0) throw system_error(errno, "read " + path);
    const auto size_bytes = static_cast<std::uint64_t>(status.st_size);
    if (size_bytes < kPackHeaderBytes + ObjectId::kSize) throw_damaged(path, "it is too short");
    std::uint8_t header[kPackHeaderBytes], trailer[ObjectId::kSize];
    if (::pread(fd.get(), header, sizeof header, 0) != sizeof header ||
        ::pread(fd.get(), trailer, sizeof trailer, static_cast<off_t>(size_bytes - sizeof trailer)) != sizeof trailer) {
      throw system_error(EIO, "read " + path);
    }
    const std::uint32_t version = big_endian_32(header + 4);
    opened_.fits_index = std::memcmp(header, "PACK", 4) == 0 && (version == 2 || version == 3) &&
                         big_endian_32(header + 8) == count() && ObjectId::from_raw(trailer) == index_->pack_trailer();
    opened_.size_bytes = size_bytes;
    opened_.fd = std::move(fd);
    is_open_ = true;
  });
  return opened_;
}

EntryHeader PackFile::header_at(std::uint64_t offset) const {
  std::uint8_t piece[kEntryHeaderBytes];
  std::size_t filled = 0;
  return header_at(offset, piece, filled);
}

EntryHeader PackFile::header_at(std::uint64_t offset, std::span<std::uint8_t> piece, std::size_t& filled) const {
  if (offset < kPackHeaderBytes || offset >= end()) throw_damaged(stem_ + ".pack", "an entry lies outside it");
  ssize_t read = -1;
  do {
    read = ::pread(fd(), piece.data(), piece.size(), static_cast<off_t>(offset));
  } while (read < 0 && errno == EINTR);
  if (read < 0) throw system_error(errno, "read " + stem_ + ".pack");
  if (read < 24) throw_damaged(stem_ + ".pack", "an entry lies outside it");
  filled = static_cast<std::size_t>(read);
  std::uint8_t bytes[kEntryHeaderBytes] = {};
  std::memcpy(bytes, piece.data(), std::min(filled, sizeof bytes));
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
    if (distance == 0 || distance >= offset) throw_damaged(stem_ + ".pack", "a delta's base lies outside it");
    header.base_offset = offset - distance;
  } else if (header.type < ObjectType::commit || header.type > ObjectType::tag) {
    throw_damaged(stem_ + ".pack", "an entry's type is not valid");
  }
  header.data_offset = offset + at;
  return header;
}

std::vector<std::string> ObjectDirectory::directories() const {
  std::vector<std::string> found{path_};
  for (std::size_t i = 0; i < found.size() && found.size() < 32; ++i) {
    std::istringstream in(read_if_there(found[i] + "/info/alternates").value_or(""));
    for (std::string line; std::getline(in, line);) {
      if (line.empty() || line[0] == '#') continue;
      const std::string path = line[0] == '/' ? line : found[i] + "/" + line;
      if (std::find(found.begin(), found.end(), path) == found.end()) found.push_back(path);
    }
  }
  return found;
}

ObjectDirectory::Stamp ObjectDirectory::stamp_of(std::string path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) status = {};
  return {std::move(path), status.st_dev, status.st_ino,
          std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

bool ObjectDirectory::is_current(const State& state) {
  return !state.may_change_unseen && std::all_of(state.stamps.begin(), state.stamps.end(),
                                                 [](const Stamp& stamp) { return stamp == stamp_of(stamp.path); });
}

void ObjectDirectory::scan(State& state) const {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const std::int64_t now_ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  state.stamps.clear();
  state.may_change_unseen = false;
  std::set<std::string> stems, packs;
  state.is_complete = true;
  for (const std::string& directory : directories()) {
    state.stamps.push_back(stamp_of(directory + "/info/alternates"));
    state.stamps.push_back(stamp_of(directory + "/pack"));
    for (const Stamp& stamp : state.stamps) {
      if (stamp.changed_ns > now_ns - kTickNs) state.may_change_unseen = true;
    }
    std::error_code error;
    for (fs::directory_iterator entry(directory + "/pack", error), end; !error && entry != end;
         entry.increment(error)) {
      const fs::path& path = entry->path();
      if (path.extension() == ".idx") stems.insert(path.parent_path() / path.stem());
      if (path.extension() == ".pack") packs.insert(path.parent_path() / path.stem());
    }
    if (error && error != std::errc::no_such_file_or_directory) state.is_complete = false;
  }
  std::erase_if(stems, [&](const std::string& stem) { return !packs.contains(stem); });
  auto open = std::make_shared<Packs>();
  for (const auto& pack : *state.open) {
    if (stems.erase(pack->stem()) > 0) open->push_back(pack);
  }
  if (open->size() < state.open->size()) ++removals_;
  for (const std::string& stem : stems) {
    try {
      open->push_back(std::make_shared<const PackFile>(stem));
    } catch (const Error& error) {
      // Version 1, damaged, or gone since: libgit2 reads what it can of it, and names what it cannot.
      if (error.code() != Errc::damaged_repository) state.is_complete = false;
    }
  }
  state.open = std::move(open);
}

std::shared_ptr<const ObjectDirectory::Packs> ObjectDirectory::recent() const {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const std::int64_t now_ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  if (looked_at_ns_ == now_ns) return state_.lock_shared()->open;
  const auto packs = current();
  looked_at_ns_ = now_ns;
  return packs;
}

void ObjectDirectory::open(const PackFile& pack) const {
  if (pack.is_open()) return;
  std::shared_ptr<const Packs> closed;  // after the lock
  {
    auto state = state_.lock();
    const auto open = std::count_if(state->open->begin(), state->open->end(),
                                    [](const auto& other) { return other->is_open(); });
    if (static_cast<std::size_t>(open) >= kMostOpenPacks) {
      // All but the largest, which have most of what will be read.
      Packs by_size = *state->open;
      std::sort(by_size.begin(), by_size.end(), [](const auto& a, const auto& b) { return a->count() > b->count(); });
      for (std::size_t i = kMostOpenPacks / 4; i < by_size.size(); ++i) {
        if (by_size[i]->is_open()) by_size[i] = std::make_shared<const PackFile>(by_size[i]);
      }
      closed = std::exchange(state->open, std::make_shared<const Packs>(std::move(by_size)));
    }
  }
  pack.open();
}

std::shared_ptr<const ObjectDirectory::Packs> ObjectDirectory::current() const {
  {
    const auto state = state_.lock_shared();
    if (is_current(*state)) return state->open;
  }
  auto state = state_.lock();
  if (!is_current(*state)) scan(*state);
  return state->open;
}

std::shared_ptr<const ObjectDirectory::Packs> ObjectDirectory::more_than(
    const std::shared_ptr<const Packs>& known) const {
  auto state = state_.lock();
  if (!state->is_complete || !is_current(*state)) scan(*state);
  return *state->open == *known ? nullptr : state->open;
}

std::optional<ObjectDirectory::Place> ObjectDirectory::find(const ObjectId& id) const {
  for (auto packs = current(); packs; packs = more_than(packs)) {
    for (const auto& pack : *packs) {
      try {
        const auto index = pack->find(id);
        if (!index) continue;
        open(*pack);
        return Place{pack, *index, {}};
      } catch (const Error&) {
        // It has just been removed, or cannot be read: the object may be elsewhere.
      }
    }
  }
  const std::string hex = id.hex();
  for (const std::string& directory : directories()) {
    std::string path = directory + "/" + hex.substr(0, 2) + "/" + hex.substr(2);
    if (::access(path.c_str(), F_OK) == 0) return Place{nullptr, 0, std::move(path)};
  }
  return std::nullopt;
}

bool ObjectDirectory::is_in(const Packs& packs, const session::ObjectId& id) const {
  for (const auto& pack : packs)
    if (pack->find(id)) return true;
  const std::string hex = id.hex();
  return ::access((path_ + "/" + hex.substr(0, 2) + "/" + hex.substr(2)).c_str(), F_OK) == 0;
}

bool ObjectDirectory::has_recently(const ObjectId& id) const {
  try {
    return is_in(*recent(), id);
  } catch (const Error&) {
    return find(id).has_value();  // a pack has just been removed, or cannot be read
  }
}

void ObjectDirectory::close_what_is_gone() const {
  auto state = state_.lock();
  if (!state->open->empty()) scan(*state);
}

ObjectDirectory::Packs ObjectDirectory::packs() const {
  auto state = state_.lock();
  scan(*state);
  return *state->open;
}

namespace {

using Pull = std::function<std::size_t(std::span<std::byte>)>;

// `keeps` holds what the reader reads from.
template <typename Keeps>
Pull pull_exactly(std::uint64_t expected, const ObjectId& id, std::shared_ptr<InflateReader> reader, Keeps keeps) {
  return [=, total = std::uint64_t{0}, keeps = std::move(keeps)](std::span<std::byte> out) mutable {
    const std::size_t count = reader->read(out);
    total += count;
    if (total > expected || (count < out.size() && total != expected)) {
      throw Error(Errc::input_output, "the blob " + id.hex() + " is damaged: it has " + std::to_string(total) +
                                          " bytes instead of " + std::to_string(expected));
    }
    return count;
  };
}

}  // namespace

Pull pull_blob(const ObjectDirectory::Place& place, const ObjectId& id) {
  const std::string what = "the blob " + id.hex();
  if (place.pack) {
    const EntryHeader header = place.pack->header_at(place.pack->offset_at(place.index));
    if (header.type != ObjectType::blob) return {};
    return pull_exactly(header.size_bytes, id,
                        std::make_shared<InflateReader>(place.pack->fd(), header.data_offset, what), place.pack);
  }
  const auto file = std::make_shared<const UniqueFd>(
      open_or_throw(AT_FDCWD, place.loose_path.c_str(), O_RDONLY, 0, "open " + place.loose_path));
  auto reader = std::make_shared<InflateReader>(file->get(), 0, what);
  std::string header;
  for (std::byte byte{}; header.size() < 32 && reader->read(std::span(&byte, 1)) == 1 && byte != std::byte{0};) {
    header.push_back(static_cast<char>(byte));
  }
  if (!header.starts_with("blob ")) throw Error(Errc::input_output, what + " is damaged: its file holds no blob");
  return pull_exactly(std::strtoull(header.c_str() + 5, nullptr, 10), id, std::move(reader), file);
}

}  // namespace escrow::storage
