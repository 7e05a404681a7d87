// Where an object's bytes lie in a git object directory: its packs' indexes (version 2) and its loose files.
//
// This is for what libgit2 cannot do: stream an entry, link the file that holds it, copy it without inflating. Reading
// throws Error{input_output}; a pack whose index cannot be read is left to libgit2. Both are thread-safe. A pack takes
// a descriptor from when it is first read; a directory keeps kMostOpenPacks of them. Source: gitformat-pack(5).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "session/base/ids.h"
#include "session/base/synchronized.h"
#include "storage/disk/unique_fd.h"
#include "storage/git/object_format.h"
#include "storage/objects/pack_index.h"

namespace escrow::storage {

// The header of a pack entry.
struct EntryHeader {
  ObjectType type;
  std::uint64_t size_bytes;   // inflated; of a delta: the delta's
  std::uint64_t data_offset;  // where the zlib stream begins
  std::uint64_t base_offset = 0;   // of an offset_delta
  session::ObjectId base_id;       // of a reference_delta
};

class PackFile {
 public:
  // `stem` is the path without ".pack" or ".idx". Throws Error{damaged_repository} unless the index is version 2.
  explicit PackFile(const std::string& stem);
  // The same pack, not open: what takes no descriptor is shared.
  explicit PackFile(const std::shared_ptr<const PackFile>& other);
  // Opens the pack, as the first read of it does: it can then be read though others remove it. Throws
  // Error{not_found} when they have, Error{damaged_repository}, Error{input_output}.
  void open() const { opened(); }
  bool is_open() const noexcept { return is_open_; }

  const std::string& stem() const noexcept { return stem_; }
  std::uint32_t count() const noexcept { return index_->count(); }
  session::ObjectId id_at(std::uint32_t index) const { return index_->id_at(index); }
  std::uint64_t offset_at(std::uint32_t index) const { return index_->offset_at(index); }
  std::uint32_t crc_at(std::uint32_t index) const { return index_->crc_at(index); }
  std::optional<std::uint32_t> find(const session::ObjectId& id) const { return index_->find(id); }
  EntryHeader header_at(std::uint64_t offset) const;
  // The same, with as much of the pack from `offset` on as `piece` takes (48 bytes or more): `filled` bytes.
  EntryHeader header_at(std::uint64_t offset, std::span<std::uint8_t> piece, std::size_t& filled) const;
  int fd() const { return opened().fd.get(); }
  // Where the entries end and the trailer begins.
  std::uint64_t end() const { return opened().size_bytes - session::ObjectId::kSize; }
  // Whether its header and its trailer are those of the pack that the index is made for.
  bool fits_index() const { return opened().fits_index; }
  // Different for each PackFile of this process.
  std::uint64_t serial() const noexcept { return serial_; }

 private:
  struct Opened {
    UniqueFd fd;
    std::uint64_t size_bytes = 0;
    bool fits_index = false;
  };
  const Opened& opened() const;

  const std::string stem_;                        // constant
  const std::shared_ptr<const PackIndex> index_;  // constant
  const std::uint64_t serial_;                    // constant
  mutable std::once_flag once_;
  mutable Opened opened_;                         // constant after once_
  mutable std::atomic<bool> is_open_ = false;
};

class ObjectDirectory {
 public:
  // More are open only while somebody reads them.
  static constexpr std::size_t kMostOpenPacks = 64;
  using Packs = std::vector<std::shared_ptr<const PackFile>>;

  // `path` is <gitdir>/objects; its info/alternates are followed.
  explicit ObjectDirectory(std::string path) : path_(std::move(path)) {}

  struct Place {
    std::shared_ptr<const PackFile> pack;  // null: loose
    std::uint32_t index = 0;               // in the pack
    std::string loose_path;
  };
  // Packs that appeared meanwhile are found.
  std::optional<Place> find(const session::ObjectId& id) const;
  // The packs that are there now, but for those whose index cannot be read. Those that others have removed are closed
  // once nobody uses them any more. Costs two stat(2) when nothing has changed, and a listing when something has.
  std::shared_ptr<const Packs> current() const;
  // The packs that were there at the last tick of the kernel's clock (4 ms) or when they were last listed, whichever is
  // later; mostly without a system call. For objects, which are the same wherever they are read.
  std::shared_ptr<const Packs> recent() const;
  // The packs that are there now, when an object is in none of `known`; nullptr: they are the same.
  std::shared_ptr<const Packs> more_than(const std::shared_ptr<const Packs>& known) const;
  // The packs that are there now, listed in any case.
  Packs packs() const;
  // PackFile::open(), for one that stays open: others are closed when there are many.
  void open(const PackFile& pack) const;
  // Of the packs that are open, those that others have removed.
  void close_what_is_gone() const;
  // Whether one of `packs`, or a loose file of this directory itself, is the object: for many questions at one moment.
  bool is_in(const Packs& packs, const session::ObjectId& id) const;
  // The same of recent(): mostly one system call. It may miss an object that another process has just published.
  bool has_recently(const session::ObjectId& id) const;
  const std::string& path() const noexcept { return path_; }
  // Changes when packs that were open are found to be gone.
  unsigned removals() const noexcept { return removals_; }
  // Every object directory: this one and its alternates, theirs too.
  std::vector<std::string> directories() const;

 private:
  // What stat(2) says of a directory of packs, or of a list of alternates.
  struct Stamp {
    std::string path;
    std::uint64_t device = 0, inode = 0;
    std::int64_t changed_ns = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  struct State {
    std::vector<Stamp> stamps;   // taken before the packs were listed
    bool may_change_unseen = true;  // a change may have had no effect on a stamp: the clock of files is coarse
    bool is_complete = false;    // every pack that is there could be opened, or is damaged
    std::shared_ptr<const Packs> open = std::make_shared<const Packs>();
  };
  static Stamp stamp_of(std::string path);
  static bool is_current(const State& state);
  void scan(State& state) const;

  const std::string path_;                            // constant
  mutable session::SharedSynchronized<State> state_;  // self-locking
  mutable std::atomic<unsigned> removals_ = 0;
  mutable std::atomic<std::int64_t> looked_at_ns_ = -1;  // by the clock of recent()
};

// Reads a blob's content from `place`, front to back, as BlobCache::Pull does; empty when it is stored as a delta. What
// it throws: Error{input_output} when the blob is damaged.
std::function<std::size_t(std::span<std::byte>)> pull_blob(const ObjectDirectory::Place& place,
                                                           const session::ObjectId& id);

}  // namespace escrow::storage
