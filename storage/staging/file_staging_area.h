// Staging files in <session>/staging/, each named by its id in hexadecimal.
//
// Thread-safe; the order of operations on one id is the caller's to keep, but for sync(). A bounded cache of
// descriptors is behind it, split into shards so that threads seldom meet. create() makes the directory. What was
// written since a file's last sync is remembered, in case the next one fails; then the executable bit marks the file
// for the next process, which takes all of it for lost. Errors as in session/interfaces/staging_area.h; a
// missing file is Error{input_output} naming it.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <variant>

#include "session/base/error.h"
#include "session/base/synchronized.h"
#include "session/interfaces/staging_area.h"
#include "storage/disk/synced_names.h"
#include "storage/disk/unique_fd.h"

namespace escrow::storage {

class FileStagingArea final : public session::StagingArea {
 public:
  static constexpr std::size_t kDefaultDescriptors = 256;

  // `directory` need not exist; its parent does. At most about `descriptors` files are kept open.
  explicit FileStagingArea(std::string directory, std::size_t descriptors = kDefaultDescriptors);

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
  std::uint64_t era() const override;
  // There is nothing to do: the kernel has what was written.
  void write_behind() override {}
  std::unique_ptr<session::RawFile> raw(session::StagingId id) override;
  bool has_writers(session::StagingId id) const override;
  Lost lost(session::StagingId id) const override;
  void sync(session::StagingId id) override;
  void sync_directory() override;
  void sync_all() override;
  std::uint64_t held_bytes() const override;
  void limit_waste(std::uint64_t) override {}
  FreeSpace free_space() const override;

  // `directory` has those of the files that are here, too, under the same names.
  void share(const std::vector<session::StagingId>& files, const std::string& directory);
  // A file with these bytes, whole or not at all; with `durable` it is on disk when this returns.
  void create_with(session::StagingId id, std::span<const std::byte> bytes, bool durable);

  // The name of the file of `id` inside the directory.
  static std::string file_name(session::StagingId id);
  // nullopt: no staging file has this name.
  static std::optional<session::StagingId> id_of(const std::string& file_name);

 private:
  // Shared, so that an eviction never closes a descriptor in use.
  using Descriptor = std::shared_ptr<const UniqueFd>;
  struct Shard {
    using Entry = std::pair<session::StagingId, Descriptor>;
    std::list<Entry> recent;  // most recent first
    std::unordered_map<session::StagingId, std::list<Entry>::iterator> index;
  };
  static constexpr std::size_t kShards = 16;

  // The open directory; -1 while it does not exist.
  int directory_fd() const;
  int create_directory();
  Descriptor descriptor(session::StagingId id) const;
  Descriptor remember(session::StagingId id, UniqueFd fd) const;
  void forget(session::StagingId id) const;
  UniqueFd open(session::StagingId id, int flags) const;
  // What was written in a file and not synced, and what of that is lost.
  struct Unsynced {
    Lost since;      // since the last sync began
    Lost under_way;  // what a sync under way is to bring to disk
    Lost lost;
    bool is_syncing = false;
    bool is_marked = false;   // the file
    bool is_exposed = false;  // it may be written without a call here
  };
  using UnsyncedFiles = std::unordered_map<session::StagingId, Unsynced>;
  enum class Change { written, copied };
  // Before and after a write: a sync may begin or end while it goes on.
  void begin_write(session::StagingId id, Change change, std::uint64_t begin, std::uint64_t end);
  void end_write(session::StagingId id, Change change, std::uint64_t begin, std::uint64_t end);
  // After bytes were given up.
  void note_zeroes(session::StagingId id, std::uint64_t begin, std::uint64_t end);
  void write(session::StagingId id, Change change, std::uint64_t offset, std::span<const std::byte> bytes);
  void await_sync(session::Synchronized<UnsyncedFiles>::Write& files, session::StagingId id);
  void begin_sync(session::StagingId id);
  // True: nothing is lost.
  bool end_sync(session::StagingId id, bool failed) noexcept;
  void give_up_sync(session::StagingId id) noexcept;
  void mark(session::StagingId id, Unsynced& unsynced) const noexcept;
  session::Synchronized<UnsyncedFiles>& unsynced(session::StagingId id) const { return unsynced_[id.value % kShards]; }
  session::Synchronized<Shard>& shard(session::StagingId id) const { return shards_[id.value % kShards]; }
  session::Error failure(int error, const char* verb, session::StagingId id) const;
  // fallocate(2); false when the file system does not know this mode.
  bool try_fallocate(session::StagingId id, int fd, int mode, std::uint64_t offset, std::uint64_t length) const;
  void write_all(int fd, session::StagingId id, std::uint64_t offset, std::span<const std::byte> bytes) const;
  void write_zeroes(session::StagingId id, std::uint64_t offset, std::uint64_t length);

  const std::string directory_;          // constant
  const std::size_t shard_capacity_;     // constant
  mutable std::atomic<std::uint64_t> era_ = 0;  // 0 until asked for
  // Guards opening; the number in fd_ never changes once it is there.
  mutable session::Synchronized<UniqueFd> opened_;
  mutable std::atomic<int> fd_ = -1;
  SyncedNames names_;                   // self-locking
  mutable std::array<session::Synchronized<UnsyncedFiles>, kShards> unsynced_;  // taken before shards_
  std::condition_variable_any sync_ended_;
  // Taken first: of two syncfs(2) on one descriptor the kernel tells one of an error.
  session::Synchronized<std::monostate> syncing_all_;
  mutable std::array<session::Synchronized<Shard>, kShards> shards_;  // self-locking
};

}  // namespace escrow::storage
