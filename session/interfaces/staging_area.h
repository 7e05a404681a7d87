// The bytes being edited: one plain file per staging id, or as good as one, in the session's own directory.
//
// Thread-safe; the order of operations on one id is the caller's to keep, but for sync(). Durability: what was written
// survives a kill of the process after write_behind(), a power loss after sync(); a removed file is gone from the
// directory at once. Throws Error{no_space} and Error{quota_exceeded} as the disk does, Error{input_output} for the
// rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "session/base/byte_ranges.h"
#include "session/base/clock.h"
#include "session/base/ids.h"

namespace escrow::session {

enum class SeekTarget { data, hole };

// lseek(2) SEEK_DATA and SEEK_HOLE in a file that has no hole but the one behind its end; nullopt is ENXIO.
inline std::optional<std::uint64_t> seek_all_data(std::uint64_t size_bytes, std::uint64_t offset, SeekTarget target) {
  if (offset >= size_bytes) return std::nullopt;
  return target == SeekTarget::data ? offset : size_bytes;
}

struct StagingUsage {
  std::uint64_t size_bytes = 0;
  std::uint64_t blocks = 0;  // of 512 bytes, as st_blocks
  Timestamp modified;        // of its file, as st_mtim; none while the bytes are in no file of their own
};

// An open descriptor of a staging file, for whoever reads and writes it without a call here. Closed when destroyed.
class RawFile {
 public:
  virtual ~RawFile() = default;
  virtual int descriptor() const = 0;
};

class StagingArea {
 public:
  virtual ~StagingArea() = default;

  virtual void create(StagingId id) = 0;
  virtual void remove(StagingId id) = 0;  // idempotent
  virtual std::vector<StagingId> list() const = 0;

  virtual StagingUsage usage(StagingId id) const = 0;
  virtual std::size_t read(StagingId id, std::uint64_t offset, std::span<std::byte> out) const = 0;
  // Writes all of `bytes`, or throws and has written a prefix.
  virtual void write(StagingId id, std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  // The same of bytes that the caller can get again from elsewhere.
  virtual void write_copy(StagingId id, std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual void truncate(StagingId id, std::uint64_t size_bytes) = 0;
  // fallocate(2) with these modes; `extend` false keeps the size. zero_range and punch_hole make zeroes.
  virtual void allocate(StagingId id, std::uint64_t offset, std::uint64_t length, bool extend) = 0;
  virtual void punch_hole(StagingId id, std::uint64_t offset, std::uint64_t length) = 0;
  virtual void zero_range(StagingId id, std::uint64_t offset, std::uint64_t length, bool extend) = 0;
  // lseek(2) SEEK_DATA and SEEK_HOLE; nullopt is ENXIO.
  virtual std::optional<std::uint64_t> seek(StagingId id, std::uint64_t offset, SeekTarget target) const = 0;

  // Changes with everything that can take unsynced bytes away: a new boot, the disk attached anew. Never 0, and the
  // same again in another process; a difference without a reason is allowed.
  virtual std::uint64_t era() const = 0;

  // What was written so far survives a kill of this process.
  virtual void write_behind() = 0;
  // A read-only descriptor to name the file by; nullptr when this area cannot tell has_writers().
  virtual std::unique_ptr<RawFile> raw(StagingId id) = 0;
  // Whether anybody but this area has the file open for writing, or mapped so that it could write.
  virtual bool has_writers(StagingId id) const = 0;

  // fdatasync(2), and the file's name. Where it fails the kernel has dropped what it could not write: what was written
  // since the last good one may be lost, and what read() gives of that is not to be believed. No later one succeeds
  // before all of it was written again, truncated away, or punched out.
  virtual void sync(StagingId id) = 0;
  struct Lost {
    ByteRanges written, copied;  // by write(), and by write_copy()
  };
  virtual Lost lost(StagingId id) const = 0;
  // The names of all files made so far.
  virtual void sync_directory() = 0;
  // syncfs(2): every staging file at once, for when there are many. Where it fails, each is synced by itself. This
  // throws when one of them could not be, or has lost something before; sync() and lost() tell which.
  virtual void sync_all() = 0;

  // What all files together take of the disk, or will once what waits in memory is written.
  virtual std::uint64_t held_bytes() const = 0;
  // What nothing needs any more is given back before it is more than this. Before the first file.
  virtual void limit_waste(std::uint64_t bytes) = 0;

  struct FreeSpace {
    std::uint64_t block_size = 4096, blocks = 0, blocks_free = 0, blocks_available = 0, files = 0, files_free = 0;
  };
  // statvfs(3) of the file system that holds the staging directory.
  virtual FreeSpace free_space() const = 0;
};

}  // namespace escrow::session
