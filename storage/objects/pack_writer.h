// Writes a pack (version 2) and its index, and moves both into a repository so that git sees all of it or nothing.
//
// Not thread-safe, but for reading fd() while finish() runs. The pack is on disk when finish() returns, and is never
// written to again: it may have a name in the repository. Both files are removed with their writer, as far as they
// still have their first names. Throws Error{no_space} and the like. Source: gitformat-pack(5).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "session/interfaces/object_store.h"
#include "storage/disk/unique_fd.h"
#include "storage/git/object_format.h"
#include "storage/git/shared_permissions.h"

namespace escrow::storage {

// What an index says of an entry.
struct PackedEntry {
  session::ObjectId id;
  std::uint64_t offset = 0;
  std::uint32_t crc = 0;
};

class PackWriter {
 public:
  // Makes `stem`.pack, a new file whatever had the name; `count` entries will be added.
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

  // Writes the trailer and `stem`.idx, and syncs both files. Idempotent; may be tried again when it has thrown.
  void finish();
  const std::string& stem() const noexcept { return stem_; }

  // What was added so far can be read from `fd` up to `offset` once this has been called.
  void flush();
  int fd() const noexcept { return fd_.get(); }
  std::uint64_t offset() const noexcept { return offset_; }
  // The CRC-32 of the entry that was added last, header and data.
  std::uint32_t last_crc() const noexcept { return entries_.back().crc; }
  static constexpr std::uint64_t kFirstEntry = 12;

 private:
  void begin(const session::ObjectId& id);
  void append(std::span<const std::byte> bytes);
  void append(std::string_view text) { append(std::as_bytes(std::span(text.data(), text.size()))); }
  void sync_pack();
  void write_again();

  const std::string stem_;
  UniqueFd fd_;
  Sha1 hash_;
  std::string buffer_;
  std::uint64_t written_ = 0;  // of what was appended; the rest is in the buffer
  std::uint64_t offset_ = 0;
  std::vector<PackedEntry> entries_;
  std::optional<session::ObjectId> checksum_;  // the trailer is appended
  bool sync_failed_ = false;
  bool finished_ = false;
};

// Writes the version 2 index of the pack whose trailer is `checksum`, a new file whatever had the name, and syncs it.
void write_pack_index(const std::string& path, std::vector<PackedEntry> entries, const session::ObjectId& checksum);

// A stem in <objects_directory>/pack that no other pack has.
std::string new_pack_stem(const std::string& objects_directory);
// Gives the files of the finished pack `stem` names in the repository: `installed`, of new_pack_stem(). A .keep file,
// which protects the pack from any gc, comes first, and the index, which makes git see the pack, last; the caller
// syncs the directory. With `link` the files keep their old names too. `keep`: a file that write_keep_file() made, to
// be linked; "": the .keep file is one of its own. When it throws, what it did is undone.
void install_pack(const std::string& stem, const std::string& installed, const std::string& keep, bool link,
                  const SharedPermissions& permissions);
// kKeepMark and `more`, on disk. Refuses to write over one; leaves none when it throws.
void write_keep_file(const std::string& path, std::string_view more = {});
// Takes the protection away. Idempotent. false: it is still there.
bool release_pack(const std::string& stem) noexcept;
// The same for a pack that nothing may need any more: its age, by which gc goes (git-repack(1), --cruft), counts from
// now on, unless it is another user's. A pack without an index, which nobody has seen and git takes for damage, goes.
bool leave_pack_to_gc(const std::string& stem) noexcept;
// Removes the pack, which nobody may need any more. Idempotent. false: its .keep file is still there, and with it what
// could not be removed.
bool remove_pack(const std::string& stem) noexcept;
// How a .keep file of ours begins; gc removes those that a crash left, when nobody publishes.
inline constexpr std::string_view kKeepMark = "escrow is publishing this pack\n";

}  // namespace escrow::storage
