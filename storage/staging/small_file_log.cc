#include "storage/staging/small_file_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "session/base/error.h"
#include "storage/disk/durable_file.h"
#include "storage/disk/file_lookup.h"

namespace escrow::storage {
namespace {

using session::StagingId;

constexpr std::uint32_t kSmallLogMagic = 0x316c6d73;  // "sml1"
constexpr std::uint64_t kSmallestSegmentBytes = std::uint64_t{256} << 10;
// A full segment of which less counts is emptied.
constexpr unsigned kWorthKeepingPercent = 25;
// What is emptied lies in memory until it is appended: about so much at a time.
constexpr std::uint64_t kMovedAtOnceBytes = std::uint64_t{16} << 20;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;  // of one write
constexpr char kPrefix[] = "small-";
// Marks a segment that a sync failed for.
constexpr unsigned kFailedMode = 0700;

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

}  // namespace

SmallFileLog::SmallFileLog(std::string directory) : directory_(std::move(directory)), names_(directory_) {}

std::string SmallFileLog::path_of(std::uint32_t segment) const {
  return directory_ + '/' + kPrefix + std::to_string(segment);
}

void SmallFileLog::count(State& state, const Place& place, bool counts) {
  Segment& segment = state.segments.at(place.segment);
  const std::uint64_t bytes = sizeof(Header) + place.length;
  segment.counting += counts ? 1 : -std::uint64_t{1};
  segment.counting_bytes += counts ? bytes : -bytes;
}

// ---- opening ----

std::unordered_map<StagingId, SmallFileLog::Place> SmallFileLog::load() {
  std::unordered_map<StagingId, Place> found;
  auto state = state_.lock();
  for (const std::string& name : names_in(directory_)) {
    if (!name.starts_with(kPrefix)) continue;
    const auto number = static_cast<std::uint32_t>(std::strtoul(name.c_str() + sizeof kPrefix - 1, nullptr, 10));
    if (number == 0 || name != kPrefix + std::to_string(number)) continue;
    const std::string path = path_of(number);
    state->segments[number].fd =
        std::make_shared<const UniqueFd>(open_or_throw(AT_FDCWD, path.c_str(), O_RDWR, 0, "open " + path));
    state->next = std::max(state->next, number + 1);
  }
  // Oldest first, so that the last record of an id is the one that stays.
  for (auto& [number, segment] : state->segments) scan(number, segment, found);
  for (const auto& [id, place] : found) count(*state, place, true);
  if (!state->segments.empty()) names_.made();  // what an earlier process made may never have been synced
  return found;
}

void SmallFileLog::scan(std::uint32_t number, Segment& segment, std::unordered_map<StagingId, Place>& found) {
  const std::string path = path_of(number);
  struct stat status;
  if (::fstat(segment.fd->get(), &status) != 0) throw system_error(errno, "look at " + path);
  segment.has_failed = (status.st_mode & kFailedMode) == kFailedMode;
  std::string whole(static_cast<std::size_t>(status.st_size), '\0');
  whole.resize(read_at(segment.fd->get(), 0, whole.data(), whole.size(), path));
  for (std::string_view rest(whole); rest.size() >= sizeof(Header);) {
    Header header;
    std::memcpy(&header, rest.data(), sizeof header);
    rest.remove_prefix(sizeof header);
    if (header.magic != kSmallLogMagic || header.length > rest.size()) return;
    if (checksum(header, rest.substr(0, header.length)) != header.crc) return;
    rest.remove_prefix(header.length);
    found.insert_or_assign(StagingId{header.id}, Place{number, header.length, segment.end + sizeof header});
    segment.ids.push_back(StagingId{header.id});
    segment.end += sizeof header + header.length;
  }
}

// ---- appending and reading ----

SmallFileLog::Segment& SmallFileLog::segment_for(State& state, std::uint64_t length) {
  if (state.current != 0) {
    Segment& current = state.segments.at(state.current);
    if (!current.has_failed && (current.end + length <= state.segment_bytes || current.end == 0)) return current;
  }
  if (::mkdir(directory_.c_str(), 0700) == 0)
    names_.made_directory();
  else if (errno != EEXIST)
    throw system_error(errno, "create the staging directory " + directory_);
  const std::string path = path_of(state.next);
  UniqueFd fd = open_or_throw(AT_FDCWD, path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600, "create " + path);
  names_.made();
  state.current = state.next++;
  Segment& made = state.segments[state.current];
  made.fd = std::make_shared<const UniqueFd>(std::move(fd));
  return made;
}

std::vector<SmallFileLog::Place> SmallFileLog::append(std::span<const Record> records) {
  std::vector<Place> places;
  places.reserve(records.size());
  std::string buffer;
  auto state = state_.lock();
  for (std::size_t next = 0; next < records.size();) {
    const std::size_t first = next;
    try {
      Segment& segment = segment_for(*state, sizeof(Header) + records[next].bytes.size());
      const std::size_t known_ids = segment.ids.size();
      buffer.clear();
      while (next < records.size() && buffer.size() < kPieceBytes) {
        const Record& record = records[next];
        const std::uint64_t end = segment.end + buffer.size() + sizeof(Header) + record.bytes.size();
        if (next > first && end > state->segment_bytes) break;
        Header header{kSmallLogMagic, static_cast<std::uint32_t>(record.bytes.size()), record.id.value, 0, 0};
        header.crc = checksum(header, record.bytes);
        buffer.append(reinterpret_cast<const char*>(&header), sizeof header);
        places.push_back({state->current, header.length, segment.end + buffer.size()});
        segment.ids.push_back(record.id);
        buffer += record.bytes;
        ++next;
      }
      try {
        write_at(segment.fd->get(), buffer, segment.end, path_of(state->current));
      } catch (...) {
        // Whole records of a part that was written must not be found there by the next process.
        if (::ftruncate(segment.fd->get(), static_cast<off_t>(segment.end)) != 0) state->current = 0;
        segment.ids.resize(known_ids);
        throw;
      }
      segment.end += buffer.size();
    } catch (...) {
      for (std::size_t i = 0; i < first; ++i) count(*state, places[i], false);
      throw;
    }
    for (std::size_t i = first; i < next; ++i) count(*state, places[i], true);
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

std::optional<std::string> SmallFileLog::read_checked(StagingId id, const Place& place) const {
  const std::shared_ptr<const UniqueFd> fd = state_.lock()->segments.at(place.segment).fd;
  const std::string path = path_of(place.segment);
  Header header;
  std::string bytes(place.length, '\0');
  try {
    if (read_at(fd->get(), place.offset - sizeof header, &header, sizeof header, path) < sizeof header)
      return std::nullopt;
    if (read_at(fd->get(), place.offset, bytes.data(), bytes.size(), path) < bytes.size()) return std::nullopt;
  } catch (const session::Error&) {
    return std::nullopt;
  }
  const bool is_it = header.magic == kSmallLogMagic && header.id == id.value && header.length == place.length;
  if (!is_it || checksum(header, bytes) != header.crc) return std::nullopt;
  return bytes;
}

// ---- what no longer counts ----

void SmallFileLog::release(const Place& place) { count(*state_.lock(), place, false); }

std::vector<std::uint32_t> SmallFileLog::failed() const {
  std::vector<std::uint32_t> failed;
  auto state = state_.lock();
  for (const auto& [number, segment] : state->segments)
    if (segment.has_failed && segment.counting > 0) failed.push_back(number);
  return failed;
}

void SmallFileLog::limit_waste(std::uint64_t bytes) {
  auto state = state_.lock();
  state->waste_bytes = bytes;
  state->segment_bytes = std::clamp(bytes, kSmallestSegmentBytes, state->segment_bytes);
}

std::vector<std::uint32_t> SmallFileLog::wasteful() {
  struct Candidate {
    std::uint32_t number;
    std::uint64_t wasted, counting;
  };
  std::vector<Candidate> candidates;
  std::uint64_t wasted = 0;
  auto state = state_.lock();
  for (const auto& [number, segment] : state->segments) {
    if (segment.counting == 0 && number != state->current) continue;  // goes as it is
    candidates.push_back({number, segment.end - segment.counting_bytes, segment.counting_bytes});
    wasted += candidates.back().wasted;
  }
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.wasted > b.wasted; });
  std::vector<std::uint32_t> chosen;
  std::uint64_t moved = 0;
  for (const Candidate& segment : candidates) {
    if (segment.wasted == 0 || moved > kMovedAtOnceBytes) break;
    const bool is_full = segment.number != state->current;
    const bool is_poor = is_full && segment.counting * 100 < (segment.counting + segment.wasted) * kWorthKeepingPercent;
    if (!is_poor && wasted <= state->waste_bytes) continue;
    chosen.push_back(segment.number);
    wasted -= segment.wasted;
    moved += segment.counting;
    if (!is_full) state->current = 0;
  }
  return chosen;
}

std::vector<StagingId> SmallFileLog::ids_in(std::uint32_t segment) const {
  auto state = state_.lock();
  const auto found = state->segments.find(segment);
  return found == state->segments.end() ? std::vector<StagingId>{} : found->second.ids;
}

// A record may be the newer one of an id whose older one lies in a segment that goes: it has to be on disk first. Where
// it cannot be brought there the segments stay.
void SmallFileLog::remove_unused() {
  const auto unused = [](const State& state) {
    std::vector<std::uint32_t> numbers;
    for (const auto& [number, segment] : state.segments)
      if (segment.counting == 0 && number != state.current) numbers.push_back(number);
    return numbers;
  };
  const std::vector<std::uint32_t> numbers = unused(*state_.lock());
  if (numbers.empty()) return;
  try {
    sync();
  } catch (const session::Error&) {
    return;
  }
  // What counts nowhere now never will again: nothing is appended to a segment that is not the current one.
  auto state = state_.lock();
  for (const std::uint32_t number : numbers) {
    ::unlink(path_of(number).c_str());
    state->segments.erase(number);
  }
}

void SmallFileLog::share(const std::string& directory) {
  auto state = state_.lock();
  state->current = 0;
  for (const auto& [number, segment] : state->segments) {
    if (segment.counting == 0) continue;
    const std::string path = path_of(number), other = directory + '/' + kPrefix + std::to_string(number);
    if (::link(path.c_str(), other.c_str()) != 0) throw system_error(errno, "share " + path);
  }
}

SmallFileLog::Space SmallFileLog::space() const {
  Space space;
  auto state = state_.lock();
  for (const auto& [number, segment] : state->segments) {
    space.held_bytes += segment.end;
    space.counting_bytes += segment.counting_bytes;
  }
  return space;
}

// ---- durability ----

// The mark is for the next process: this one knows.
void SmallFileLog::fail(std::uint32_t number, const UniqueFd& fd) {
  ::fchmod(fd.get(), kFailedMode);
  auto state = state_.lock();
  if (const auto found = state->segments.find(number); found != state->segments.end()) {
    found->second.has_failed = true;
    if (state->current == number) state->current = 0;
  }
}

void SmallFileLog::sync() {
  struct Due {
    std::uint32_t number;
    std::shared_ptr<const UniqueFd> fd;
    std::uint64_t end;
  };
  const auto turn = syncing_.lock();
  std::vector<Due> due;
  {
    auto state = state_.lock();
    for (const auto& [number, segment] : state->segments) {
      // What no longer counts need not be on disk.
      if (segment.counting == 0) continue;
      if (segment.has_failed)
        throw session::Error(session::Errc::input_output,
                             "cannot sync " + path_of(number) + ": the disk failed to, earlier; try again");
      if (segment.synced < segment.end) due.push_back({number, segment.fd, segment.end});
    }
  }
  for (const Due& item : due) {
    if (sync_data(item.fd->get())) continue;
    const int error = errno;
    fail(item.number, *item.fd);
    throw system_error(error, "sync " + path_of(item.number));
  }
  names_.sync();
  auto state = state_.lock();
  for (const Due& item : due)
    if (const auto found = state->segments.find(item.number); found != state->segments.end())
      found->second.synced = item.end;
}

bool SmallFileLog::is_synced(const Place& place) const {
  return place.offset < state_.lock()->segments.at(place.segment).synced;
}

}  // namespace escrow::storage
