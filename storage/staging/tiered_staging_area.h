// The staging area of a session: small files in memory and a shared log, the others in files of their own.
//
// A file is small from its creation until it grows past kSmallBytes, is written again and again, or needs what only a
// file system can do (allocation, holes, a descriptor); then it moves to a file of its own for good. Making, writing
// and removing a small file costs no system call: what changed is appended to the log by write_behind(), and sooner
// when much waits. Where the disk is nearly full each file is its own, so that a write that does not fit fails at once.
// An id that has a file of its own and a record is the file's. A small file that was removed may be listed again after
// a restart, for as long as others share its segment. A segment of the log of which little counts is emptied: what
// counts is appended again. So is what lies in a segment that a sync failed for.
//
// Thread-safe; the order of operations on one id is the caller's to keep, but for sync(). Locks, in this order:
// appending_, a shard, the log's. Durability and errors as session/interfaces/staging_area.h says.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "session/base/synchronized.h"
#include "session/interfaces/staging_area.h"
#include "storage/staging/file_staging_area.h"
#include "storage/staging/small_file_log.h"

namespace escrow::storage {

class TieredStagingArea final : public session::StagingArea {
 public:
  static constexpr std::uint64_t kSmallBytes = 64 << 10;

  // As FileStagingArea. Reads what an earlier process left there.
  explicit TieredStagingArea(std::string directory,
                             std::size_t descriptors = FileStagingArea::kDefaultDescriptors);

  void create(session::StagingId id) override;
  void remove(session::StagingId id) override;
  std::vector<session::StagingId> list() const override;
  session::StagingUsage usage(session::StagingId id) const override;
  std::size_t read(session::StagingId id, std::uint64_t offset, std::span<std::byte> out) const override;
  void write(session::StagingId id, std::uint64_t offset, std::span<const std::byte> bytes) override;
  void write_copy(session::StagingId id, std::uint64_t offset, std::span<const std::byte> bytes) override;
  void truncate(session::StagingId id, std::uint64_t size_bytes) override;
  void allocate(session::StagingId id, std::uint64_t offset, std::uint64_t length, bool extend) override;
  void punch_hole(session::StagingId id, std::uint64_t offset, std::uint64_t length) override;
  void zero_range(session::StagingId id, std::uint64_t offset, std::uint64_t length, bool extend) override;
  std::optional<std::uint64_t> seek(session::StagingId id, std::uint64_t offset,
                                    session::SeekTarget target) const override;
  std::unique_ptr<session::RawFile> raw(session::StagingId id) override;
  bool has_writers(session::StagingId id) const override;
  std::uint64_t era() const override;
  Lost lost(session::StagingId id) const override;
  void write_behind() override;
  void sync(session::StagingId id) override;
  void sync_directory() override;
  void sync_all() override;
  std::uint64_t held_bytes() const override;
  void limit_waste(std::uint64_t bytes) override { log_.limit_waste(bytes); }
  FreeSpace free_space() const override;

  // `directory`, which exists and which no staging area has used yet, has these files, too, under the same ids and as
  // they are on the disk: hard links, of small ones to the segments they lie in. Nobody may write to them any more.
  void share(const std::vector<session::StagingId>& files, const std::string& directory);

 private:
  struct Small {
    std::string bytes;           // while it is dirty
    SmallFileLog::Place place;   // of the newest record
    std::uint32_t size = 0;
    std::uint32_t changes = 0;   // since it was made or loaded
    std::uint8_t appends = 0;    // of what was changed
    bool dirty = false;          // the bytes are in memory and wait for a record; the id is in Shard::dirty
    bool was_synced = false;     // a record of it, newest or older, may be on disk: an fsync was promised
    bool moves = false;          // dirty only because its record is to lie elsewhere
    bool damaged = false;        // its record is lost
  };
  struct Shard {
    std::unordered_map<session::StagingId, Small> files;
    std::vector<session::StagingId> dirty;
  };
  // What one write_behind() appends.
  struct Waiting {
    session::StagingId id;
    std::uint32_t changes;
    std::string bytes;
  };
  static constexpr std::size_t kShards = 16;

  session::Synchronized<Shard>& shard(session::StagingId id) const { return shards_[id.value % kShards]; }
  static Small* find(Shard& shard, session::StagingId id);
  // Runs `change` on the small file and marks it; false when the file is not small, or is no longer now.
  // False when the file is not small, or no longer now.
  bool write_small(session::StagingId id, std::uint64_t offset, std::span<const std::byte> bytes);
  template <typename Change>
  bool change_small(session::StagingId id, std::uint64_t new_size, Change change);
  std::string bytes_of(session::StagingId id, const Small& small) const;
  void make_dirty(Shard& shard, session::StagingId id, Small& small);
  bool is_promised(const Small& small) const;
  void forget(Shard& shard, session::StagingId id);
  void give_own_file(Shard& shard, session::StagingId id);
  void give_own_file(session::StagingId id);
  bool is_small(session::StagingId id) const;
  void measure_room() noexcept;
  void empty_segment(std::uint32_t segment);
  void empty_failed_segments();
  void sync_log();
  std::vector<Waiting> take_waiting();
  void give_back(const std::vector<Waiting>& waiting);
  void settle(const std::vector<Waiting>& waiting, const std::vector<SmallFileLog::Place>& places);

  FileStagingArea files_;                                      // self-locking
  mutable SmallFileLog log_;                                   // self-locking
  session::Synchronized<int> appending_{0};                    // one write_behind() at a time; guards nothing
  mutable std::array<session::Synchronized<Shard>, kShards> shards_;
  std::atomic<std::uint64_t> dirty_bytes_ = 0;
  std::atomic<bool> has_room_ = false;  // whether a file's bytes may wait in memory: see .cc
};

}  // namespace escrow::storage
