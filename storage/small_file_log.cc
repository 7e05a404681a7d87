#include "storage/small_file_log.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "session/error.h"
#include "storage/durable_file.h"

namespace escrow::storage {
namespace {

using session::StagingId;

constexpr std::uint32_t kMagic = 0x316c6d73;  // "sml1"
constexpr std::uint64_t kSegmentBytes = std::uint64_t{16} << 20;
constexpr char kPrefix[] = "small-";

// In the byte order of the machine: a session never leaves it.
struct Header {
  std::uint32_t magic;
  std::uint32_t length;
  std::uint64_t id;
  std::uint32_t crc;  // of length, id and the bytes
  std::uint32_t unused;
};
static_assert(sizeof(Header) == 24);

std::uint32_t checksum(const Header& header, std::string_view bytes) {
  uLong crc = ::crc32_z(0, reinterpret_cast<const Bytef*>(&header.length), sizeof header.length);
  crc = ::crc32_z(crc, reinterpret_cast<const Bytef*>(&header.id), sizeof header.id);
  return static_cast<std::uint32_t>(::crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::size_t read_at(int fd, std::uint64_t offset, void* out, std::size_t size, const std::string& path) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count = ::pread(fd, static_cast<char*>(out) + done, size - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(errno, "read " + path);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

void write_at(int fd, std::uint64_t offset, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error(errno, "write " + path);
    bytes.remove_prefix(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

}  // namespace

SmallFileLog::SmallFileLog(std::string directory) : directory_(std::move(directory)) {}

std::string SmallFileLog::path_of(std::uint32_t segment) const {
  return directory_ + '/' + kPrefix + std::to_string(segment);
}

// ---- opening ----

std::unordered_map<StagingId, SmallFileLog::Place> SmallFileLog::load() {
  std::unordered_map<StagingId, Place> found;
  DIR* const stream = ::opendir(directory_.c_str());
  if (stream == nullptr) {
    if (errno == ENOENT) return found;
    throw system_error(errno, "list the staging directory " + directory_);
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> owner(stream, ::closedir);
  auto state = state_.lock();
  while (const dirent* entry = ::readdir(stream)) {
    const std::string_view name(entry->d_name);
    if (!name.starts_with(kPrefix)) continue;
    const auto number = static_cast<std::uint32_t>(std::strtoul(entry->d_name + sizeof kPrefix - 1, nullptr, 10));
    if (number == 0 || name != kPrefix + std::to_string(number)) continue;
    const std::string path = path_of(number);
    state->segments[number].fd =
        std::make_shared<const UniqueFd>(open_or_throw(AT_FDCWD, path.c_str(), O_RDWR, 0, "open " + path));
    state->next = std::max(state->next, number + 1);
  }
  // Oldest first, so that the last record of an id is the one that stays.
  for (auto& [number, segment] : state->segments) scan(number, segment, found);
  for (const auto& [id, place] : found) state->segments.at(place.segment).counting += 1;
  state->names_unsynced = !state->segments.empty();  // what an earlier process made may never have been synced
  return found;
}

void SmallFileLog::scan(std::uint32_t number, Segment& segment, std::unordered_map<StagingId, Place>& found) {
  const std::string path = path_of(number);
  struct stat status;
  if (::fstat(segment.fd->get(), &status) != 0) throw system_error(errno, "look at " + path);
  std::string whole(static_cast<std::size_t>(status.st_size), '\0');
  whole.resize(read_at(segment.fd->get(), 0, whole.data(), whole.size(), path));
  for (std::string_view rest(whole); rest.size() >= sizeof(Header);) {
    Header header;
    std::memcpy(&header, rest.data(), sizeof header);
    rest.remove_prefix(sizeof header);
    if (header.magic != kMagic || header.length > rest.size()) return;
    if (checksum(header, rest.substr(0, header.length)) != header.crc) return;
    rest.remove_prefix(header.length);
    found.insert_or_assign(StagingId{header.id}, Place{number, segment.end + sizeof header, header.length});
    segment.end += sizeof header + header.length;
  }
}

// ---- appending and reading ----

SmallFileLog::Segment& SmallFileLog::segment_for(State& state, std::uint64_t length) {
  if (state.current != 0) {
    Segment& current = state.segments.at(state.current);
    if (current.end + length <= kSegmentBytes || current.end == 0) return current;
  }
  if (::mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST) {
    throw system_error(errno, "create the staging directory " + directory_);
  }
  const std::string path = path_of(state.next);
  UniqueFd fd = open_or_throw(AT_FDCWD, path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600, "create " + path);
  state.current = state.next++;
  state.names_unsynced = true;
  Segment& made = state.segments[state.current];
  made.fd = std::make_shared<const UniqueFd>(std::move(fd));
  return made;
}

std::vector<SmallFileLog::Place> SmallFileLog::append(std::span<const Record> records) {
  std::vector<Place> places;
  places.reserve(records.size());
  std::string buffer;
  auto state = state_.lock();
  remove_unused(*state);
  for (std::size_t next = 0; next < records.size();) {
    Segment& segment = segment_for(*state, sizeof(Header) + records[next].bytes.size());
    buffer.clear();
    const std::size_t first = next;
    while (next < records.size()) {
      const Record& record = records[next];
      if (next > first && segment.end + buffer.size() + sizeof(Header) + record.bytes.size() > kSegmentBytes) break;
      Header header{kMagic, static_cast<std::uint32_t>(record.bytes.size()), record.id.value, 0, 0};
      header.crc = checksum(header, record.bytes);
      buffer.append(reinterpret_cast<const char*>(&header), sizeof header);
      places.push_back({state->current, segment.end + buffer.size(), header.length});
      buffer += record.bytes;
      ++next;
    }
    try {
      write_at(segment.fd->get(), segment.end, buffer, path_of(state->current));
    } catch (...) {
      for (std::size_t i = 0; i < first; ++i) state->segments.at(places[i].segment).counting -= 1;
      throw;
    }
    segment.end += buffer.size();
    segment.counting += next - first;
  }
  return places;
}

std::size_t SmallFileLog::read(const Place& place, std::uint64_t offset, std::span<std::byte> out) const {
  if (offset >= place.length) return 0;
  const std::shared_ptr<const UniqueFd> fd = state_.lock()->segments.at(place.segment).fd;
  const std::size_t wanted = std::min<std::uint64_t>(out.size(), place.length - offset);
  if (read_at(fd->get(), place.offset + offset, out.data(), wanted, path_of(place.segment)) < wanted) {
    throw session::Error(session::Errc::input_output, "the staging file " + path_of(place.segment) + " is cut short");
  }
  return wanted;
}

// ---- what no longer counts ----

void SmallFileLog::release(const Place& place) { state_.lock()->segments.at(place.segment).counting -= 1; }

void SmallFileLog::remove_unused() { remove_unused(*state_.lock()); }

// A record may be the newer one of an id whose older one lies in a segment that goes: it has to be on disk first.
void SmallFileLog::remove_unused(State& state) {
  const auto is_unused = [&](const auto& item) { return item.second.counting == 0 && item.first != state.current; };
  if (std::none_of(state.segments.begin(), state.segments.end(), is_unused)) return;
  sync(state);
  std::erase_if(state.segments, [&](const auto& item) {
    if (!is_unused(item)) return false;
    ::unlink(path_of(item.first).c_str());
    return true;
  });
}

// ---- durability ----

void SmallFileLog::sync() { sync(*state_.lock()); }

void SmallFileLog::sync(State& state) {
  for (auto& [number, segment] : state.segments) {
    // What no longer counts need not be on disk.
    if (segment.synced == segment.end || segment.counting == 0) continue;
    if (::fdatasync(segment.fd->get()) != 0) throw system_error(errno, "sync " + path_of(number));
    segment.synced = segment.end;
  }
  if (!state.names_unsynced) return;
  sync_directory(directory_);
  sync_directory(parent_of(directory_));
  state.names_unsynced = false;
}

bool SmallFileLog::is_synced(const Place& place) const {
  return place.offset < state_.lock()->segments.at(place.segment).synced;
}

}  // namespace escrow::storage
