// Where an object's bytes lie in a git object directory: its packs' indexes (version 2) and its loose files.
//
// This is for what libgit2 cannot do: stream an entry, link the file that holds it, copy it without inflating. Reading
// throws Error{input_output}; a pack whose index cannot be read is left to libgit2. PackFile is immutable;
// ObjectDirectory is thread-safe. Source: gitformat-pack(5).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/ids.h"
#include "session/synchronized.h"
#include "storage/object_format.h"
#include "storage/unique_fd.h"

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
  ~PackFile();
  PackFile(const PackFile&) = delete;
  PackFile& operator=(const PackFile&) = delete;

  const std::string& stem() const noexcept { return stem_; }
  std::uint32_t count() const noexcept { return count_; }
  session::ObjectId id_at(std::uint32_t index) const;
  std::uint64_t offset_at(std::uint32_t index) const;
  std::uint32_t crc_at(std::uint32_t index) const;
  std::optional<std::uint32_t> find(const session::ObjectId& id) const;
  EntryHeader header_at(std::uint64_t offset) const;
  int fd() const noexcept { return pack_.get(); }
  // Where the entries end and the trailer begins.
  std::uint64_t end() const noexcept { return pack_size_ - session::ObjectId::kSize; }

 private:
  const std::string stem_;
  UniqueFd pack_;
  std::uint64_t pack_size_ = 0;
  const std::uint8_t* index_ = nullptr;  // mapped
  std::size_t index_size_ = 0;
  std::uint32_t count_ = 0;
};

class ObjectDirectory {
 public:
  // `path` is <gitdir>/objects; its info/alternates are followed.
  explicit ObjectDirectory(std::string path) : path_(std::move(path)) {}

  struct Place {
    std::shared_ptr<const PackFile> pack;  // null: loose
    std::uint32_t index = 0;               // in the pack
    std::string loose_path;
  };
  // Packs that appeared meanwhile are found, but for one in the same clock tick as the last scan.
  std::optional<Place> find(const session::ObjectId& id) const;
  std::vector<std::shared_ptr<const PackFile>> packs() const;
  // Of the packs that are open, those that others have removed.
  void close_what_is_gone() const;
  // Whether one of `packs`, or a loose file of this directory itself, is the object: for many questions at one moment.
  bool is_in(const std::vector<std::shared_ptr<const PackFile>>& packs, const session::ObjectId& id) const;
  const std::string& path() const noexcept { return path_; }
  // Every object directory: this one and its alternates, theirs too.
  std::vector<std::string> directories() const;

 private:
  struct Packs {
    std::vector<std::int64_t> stamp;  // of the pack directories when they were scanned
    std::vector<std::shared_ptr<const PackFile>> open;
  };
  std::vector<std::int64_t> stamp() const;
  void scan(Packs& packs) const;

  const std::string path_;                      // constant
  mutable session::Synchronized<Packs> packs_;  // self-locking
};

// Streams a blob's content from `place` to `visit`; returns false when it is stored as a delta, having called nothing.
bool stream_blob(const ObjectDirectory::Place& place, const session::ObjectId& id,
                 const std::function<void(std::span<const std::byte>)>& visit);

}  // namespace escrow::storage
