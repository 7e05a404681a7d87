// The contents of small staging files, appended to a few shared files: <staging>/small-<n>, called segments.
//
// A record is {magic, length, the crc32 of what follows, id} and the bytes; the last record of an id counts.
// A segment takes records up to a limit, then the next one begins; one in which no record counts any more is removed
// with the next append, or when that is asked for. Opening reads the segments once, each in one piece, and stops at the
// first record that is not whole: a process died while it wrote it.
//
// Thread-safe; one lock, a leaf, held across appends and syncs. Durability: append() survives a kill of the process,
// sync() makes every record that counts, and the names of the segments, survive a power loss. Throws as
// session/staging_area.h says.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "session/ids.h"
#include "session/synchronized.h"
#include "storage/unique_fd.h"

namespace escrow::storage {

class SmallFileLog {
 public:
  struct Record {
    session::StagingId id;
    std::string_view bytes;
  };
  // Where the bytes of a record lie.
  struct Place {
    std::uint32_t segment = 0;  // 0: nowhere
    std::uint64_t offset = 0;
    std::uint32_t length = 0;
    explicit operator bool() const noexcept { return segment != 0; }
  };

  // `directory` need not exist before the first append; its parent does.
  explicit SmallFileLog(std::string directory);

  // What counted when the log was last open. Once, before anything else.
  std::unordered_map<session::StagingId, Place> load();
  // The places are in the order of the records; each counts until it is released. All or nothing.
  std::vector<Place> append(std::span<const Record> records);
  // Short only at the end of the record.
  std::size_t read(const Place& place, std::uint64_t offset, std::span<std::byte> out) const;
  void release(const Place& place);
  // Segments in which nothing counts.
  void remove_unused();

  void sync();
  // Whether the record is known to be on disk.
  bool is_synced(const Place& place) const;

 private:
  struct Segment {
    std::shared_ptr<const UniqueFd> fd;
    std::uint64_t end = 0;
    std::uint64_t synced = 0;  // everything before it is on disk
    std::uint64_t counting = 0;  // records that count
  };
  struct State {
    std::map<std::uint32_t, Segment> segments;
    std::uint32_t current = 0;  // 0: none takes records
    std::uint32_t next = 1;
    bool names_unsynced = false;
  };

  std::string path_of(std::uint32_t segment) const;
  Segment& segment_for(State& state, std::uint64_t length);
  void scan(std::uint32_t number, Segment& segment, std::unordered_map<session::StagingId, Place>& found);
  void sync(State& state);
  void remove_unused(State& state);

  const std::string directory_;                  // constant
  mutable session::Synchronized<State> state_;   // a leaf
};

}  // namespace escrow::storage
