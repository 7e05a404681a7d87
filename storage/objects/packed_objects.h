// Objects read straight from their packs: what a session reads first, at a third of what libgit2 takes for it.
//
// A copy that is damaged is passed by when another pack has the object, too; an object that cannot be read from any
// pack that should have it throws Error{input_output} naming it, the pack and the damage. nullopt is "ask libgit2":
// loose objects, packs without an index of version 2, what is too large, what is not there. The content returned has
// the id that was asked for (SHA-1), in every call. Memory is bounded: an object and its bases, each of at most
// kMostPackedBytes, and kBasesBytes of bases that are kept. Thread-safe; no lock is held over the disk.
//
// Nothing is mapped: a read of a mapping whose file was truncated ends the process (SIGBUS), and what is mapped counts
// as resident. Most entries are one pread(2) of 4 KiB. Source: gitformat-pack(5).
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "session/base/synchronized.h"
#include "storage/objects/pack_reader.h"

namespace escrow::storage {

class PackedObjects {
 public:
  static constexpr std::uint64_t kMostPackedBytes = std::uint64_t{16} << 20;
  static constexpr std::uint64_t kBasesBytes = std::uint64_t{4} << 20;

  // `directory` must outlive it.
  explicit PackedObjects(const ObjectDirectory& directory) : directory_(directory) {}

  bool contains(const session::ObjectId& id) const;
  // Type and size, without inflating the content.
  std::optional<std::pair<ObjectType, std::uint64_t>> header(const session::ObjectId& id) const;
  std::optional<RawObject> read(const session::ObjectId& id, std::uint64_t most_bytes = kMostPackedBytes) const;

 private:
  struct Object {
    ObjectType type;
    std::shared_ptr<const std::string> content;
  };
  using Key = std::pair<std::uint64_t, std::uint64_t>;  // the pack's serial(), the offset
  struct Bases {
    using Entry = std::pair<Key, Object>;
    std::list<Entry> recent;  // newest first
    std::map<Key, std::list<Entry>::iterator> by_key;
    std::uint64_t bytes = 0;
  };

  // The first answer that `question(pack, offset)` has of the packs that have the object.
  template <typename Question>
  auto ask(const session::ObjectId& id, Question question) const
      -> decltype(question(std::declval<const PackFile&>(), std::uint64_t{}));
  std::optional<RawObject> read_at(const PackFile& pack, std::uint64_t offset, std::uint64_t most_bytes) const;
  std::optional<Object> kept_base(const Key& key) const;
  void keep_base(const Key& key, const Object& object) const;

  const ObjectDirectory& directory_;                 // self-locking
  mutable session::Synchronized<Bases> bases_;       // self-locking
};

}  // namespace escrow::storage
