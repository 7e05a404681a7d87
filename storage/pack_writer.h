// Writes a pack (version 2) and its index, and moves both into a repository so that git sees all of it or nothing.
//
// Not thread-safe. The pack is on disk when finish() returns. Throws Error{no_space} and the like; an unfinished pack
// is removed with its writer. Source: gitformat-pack(5).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "session/object_store.h"
#include "storage/object_format.h"
#include "storage/unique_fd.h"

namespace escrow::storage {

// What an index says of an entry.
struct PackedEntry {
  session::ObjectId id;
  std::uint64_t offset = 0;
  std::uint32_t crc = 0;
};

class PackWriter {
 public:
  // Makes `stem`.pack; `count` entries will be added.
  PackWriter(std::string stem, std::uint32_t count);
  ~PackWriter();
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  // An entry that lies, header and deflated data, in another file.
  void add_copy(const session::ObjectId& id, int fd, std::uint64_t offset, std::uint64_t length);
  // The same with another header.
  void add_copy(const session::ObjectId& id, const std::string& header, int fd, std::uint64_t offset,
                std::uint64_t length);
  // An object in memory, deflated here.
  void add_object(const session::ObjectId& id, ObjectType type, const std::string& content);
  // A blob of any size, streamed; returns its id. Content that does not shrink is stored as it is.
  session::ObjectId add_blob(const session::ByteSource& source);

  // Writes the trailer and `stem`.idx, and syncs both files.
  void finish();
  const std::string& stem() const noexcept { return stem_; }

  // What was added so far can be read from `fd` up to `offset` once this has been called.
  void flush();
  int fd() const noexcept { return fd_.get(); }
  std::uint64_t offset() const noexcept { return offset_; }
  static constexpr std::uint64_t kFirstEntry = 12;

 private:
  void begin(const session::ObjectId& id);
  void append(std::span<const std::byte> bytes);
  void append(std::string_view text) { append(std::as_bytes(std::span(text.data(), text.size()))); }

  const std::string stem_;
  UniqueFd fd_;
  Sha1 hash_;
  std::string buffer_;
  std::uint64_t offset_ = 0;
  std::vector<PackedEntry> entries_;
  bool finished_ = false;
};

// Writes the version 2 index of the pack whose trailer is `checksum`, and syncs it.
void write_pack_index(const std::string& path, std::vector<PackedEntry> entries, const session::ObjectId& checksum);

// Gives `stem`.pack and `stem`.idx names in <objects_directory>/pack that no other pack has, and returns the new stem.
// A .keep file, which protects the pack from any gc, comes first, and the index, which makes git see the pack, last;
// then the directory is synced. With `link` the files keep their old names too. `keep`: a file that write_keep_file()
// made, to be linked; "": the .keep file is one of its own.
std::string install_pack(const std::string& stem, const std::string& objects_directory, const std::string& keep,
                         bool link);
// Refuses to write over one.
void write_keep_file(const std::string& path);
// Takes the protection away. Idempotent.
void release_pack(const std::string& stem) noexcept;
// Removes the pack, which nobody may need any more. Idempotent.
void remove_pack(const std::string& stem) noexcept;
// Derived files of `objects` that name what packs held: they must not outlive one. Git makes them again.
void remove_derived_files(const std::string& objects) noexcept;

// How a .keep file of ours begins; gc, which runs when nobody publishes, removes those that a crash left.
inline constexpr std::string_view kKeepMark = "escrow is publishing this pack\n";

}  // namespace escrow::storage
