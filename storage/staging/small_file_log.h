// The contents of small staging files, appended to a few shared files: <staging>/small-<n>, called segments.
//
// A record is {magic, length, the crc32 of what follows, id} and the bytes; the last record of an id counts.
// A segment takes records up to a limit, then the next one begins; one in which no record counts any more is removed
// when that is asked for. Opening reads the segments once, each in one piece, and stops at the first record that is not
// whole: a process died while it wrote it.
//
// After a sync that failed the kernel has dropped what it could not write, and a second one would succeed without
// having written it. Such a segment takes no more records and is never synced again: its executable bit marks it, also
// for the next process, and the owner moves what counts in it elsewhere (ids_in(), read_checked(), append()).
//
// Thread-safe; locks: syncing_, then state_, a leaf. Durability: append() survives a kill of the process, sync() makes
// every record that counts, and the names of the segments, survive a power loss. Throws as
// session/interfaces/staging_area.h says.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "session/base/ids.h"
#include "session/base/synchronized.h"
#include "storage/disk/synced_names.h"
#include "storage/disk/unique_fd.h"

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
    std::uint32_t length = 0;
    std::uint64_t offset = 0;
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
  // The whole record, or nullopt when it cannot be read or its bytes are not those that were appended.
  std::optional<std::string> read_checked(session::StagingId id, const Place& place) const;
  void release(const Place& place);

  // `directory`, which nobody has opened yet, has every segment in which something counts, too. None of them takes
  // records any more, here or there.
  void share(const std::string& directory);

  void sync();
  // Whether the record is known to be on disk.
  bool is_synced(const Place& place) const;

  // Segments that a sync failed for and in which something counts.
  std::vector<std::uint32_t> failed() const;
  // Segments that are to be emptied, because little counts in them: so the log takes at most about four times what is
  // in it. They take no more records.
  std::vector<std::uint32_t> wasteful();
  // The same once more than this in all does not count. Before the first append.
  void limit_waste(std::uint64_t bytes);
  // The ids of the records in a segment, whether they count or not, some of them several times.
  std::vector<session::StagingId> ids_in(std::uint32_t segment) const;
  // Removes segments in which nothing counts, once the records that took the place of theirs are on disk.
  void remove_unused();

  struct Space {
    std::uint64_t held_bytes = 0;      // of the disk
    std::uint64_t counting_bytes = 0;  // of records that count
  };
  Space space() const;

 private:
  struct Segment {
    std::shared_ptr<const UniqueFd> fd;
    std::uint64_t end = 0;
    std::uint64_t synced = 0;          // everything before it is on disk
    std::uint64_t counting = 0;        // records that count
    std::uint64_t counting_bytes = 0;  // with their headers
    bool has_failed = false;           // a sync of it
    std::vector<session::StagingId> ids;
  };
  struct State {
    std::uint64_t segment_bytes = std::uint64_t{16} << 20;
    std::uint64_t waste_bytes = ~std::uint64_t{0};
    std::map<std::uint32_t, Segment> segments;
    std::uint32_t current = 0;  // 0: none takes records
    std::uint32_t next = 1;
  };

  std::string path_of(std::uint32_t segment) const;
  Segment& segment_for(State& state, std::uint64_t length);
  void scan(std::uint32_t number, Segment& segment, std::unordered_map<session::StagingId, Place>& found);
  static void count(State& state, const Place& place, bool counts);
  void fail(std::uint32_t segment, const UniqueFd& fd);

  const std::string directory_;                  // constant
  SyncedNames names_;                            // self-locking
  session::Synchronized<int> syncing_{0};        // one sync at a time, so that none misses the failure of another
  mutable session::Synchronized<State> state_;   // a leaf
};

}  // namespace escrow::storage
