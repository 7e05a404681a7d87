// A session's own new objects, in its directory, until they are published as packs of the repository.
//
// Small objects are appended, deflated, to one growing file in the form of pack entries, with an index in memory; huge
// blobs get a pack of their own. The first small ones stay in memory: most sessions need no file. Publishing copies
// entries without inflating them. What the repository already had when an object was put is borrowed: its file is
// linked into <directory>/borrowed, so that no gc can take it away. Packs that were published are listed in
// <directory>/published (publications.h); discard() leaves them to gc, for a push under way may rely on what it found
// there (git-receive-pack(1) stores nothing that the repository has). Objects of Git LFS lie in <directory>/lfs
// (lfs_holding.h). Everything else here is a cache: opening an existing directory empties it, for all of it can be made
// again from staging. Thread-safety as session::Quarantine says.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "session/base/synchronized.h"
#include "session/interfaces/object_store.h"
#include "storage/lfs/lfs_holding.h"
#include "storage/lfs/lfs_store.h"
#include "storage/objects/git_object_store.h"
#include "storage/objects/pack_writer.h"
#include "storage/objects/publications.h"

namespace escrow::storage {

class GitQuarantine final : public session::Quarantine {
 public:
  // A larger blob is published as a pack of its own, without another copy.
  static constexpr std::uint64_t kOwnPackBytes = std::uint64_t{128} << 20;

  // `directory` need not exist. `pool` and `store` are the repository's and must outlive this.
  GitQuarantine(GitRepositoryPool& pool, const GitObjectStore& store, std::string directory, std::string gc_lock_path,
                std::uint64_t own_pack_bytes = kOwnPackBytes);
  ~GitQuarantine() override;

  session::Tree read_tree(const session::ObjectId& id) const override;
  session::Commit read_commit(const session::ObjectId& id) const override;
  std::uint64_t blob_size(const session::ObjectId& id) const override;
  std::shared_ptr<const session::ByteSource> open_blob(const session::ObjectId& id) const override;
  bool contains(const session::ObjectId& id) const override;

  session::ObjectId put_blob(const session::ByteSource& source) override;
  session::ObjectId put_lfs_file(const session::ByteSource& source) override;
  session::ObjectId put_tree(const session::Tree& tree) override;
  session::ObjectId put_commit(const session::Commit& commit) override;
  std::unique_ptr<Published> publish(const session::ObjectId& root) override;
  void read_through(std::vector<const session::Quarantine*> others) override;
  bool holds(const session::ObjectId& id) const override { return find(id).has_value(); }
  std::optional<session::ObjectId> put_merged_text(const session::ObjectId& base, const session::ObjectId& ours,
                                                   const session::ObjectId& theirs) override;
  std::uint64_t held_bytes() const override;
  void discard() override;

  // Type and size of an object that is here, not in the repository.
  std::optional<std::pair<ObjectType, std::uint64_t>> own_header(const session::ObjectId& id) const;
  // Its whole content: not for large blobs.
  std::optional<RawObject> read_own(const session::ObjectId& id) const;

 private:
  // Entries one after another.
  struct Entries {
    std::shared_ptr<const UniqueFd> file;  // null: there are none yet
    std::uint64_t end = 0;
  };
  // Where an entry lies: header at `offset`, `length` with it.
  struct Stored {
    ObjectType type;
    std::uint64_t size_bytes;
    std::shared_ptr<const UniqueFd> file;  // null: its own pack
    std::uint64_t offset;
    std::uint64_t length;
    std::uint32_t crc;  // of the entry
    std::shared_ptr<PackWriter> own_pack = nullptr;  // of a huge blob
  };
  struct Contents {
    std::unordered_map<session::ObjectId, Stored> stored;
    std::unordered_set<session::ObjectId> borrowed;
    std::set<std::string> linked_packs;  // stems
    Entries in_memory, on_disk;
    std::uint64_t own_packs_bytes = 0;
    std::uint64_t next_file = 1;
  };
  class Guard;
  struct Walk;
  std::string list_path() const { return directory_ + "/published"; }

  session::ObjectId put_small(ObjectType type, const std::string& content);
  session::ObjectId put_large(const session::ByteSource& source);
  bool is_known(const session::ObjectId& id, ObjectType type, const std::string& content);
  bool is_known(const session::ObjectId& id, PackWriter& blob, std::uint64_t size_bytes);
  bool borrow(const session::ObjectId& id);
  bool link_borrowed(const ObjectDirectory::Place& place, const session::ObjectId& id);
  void store(const session::ObjectId& id, ObjectType type, const std::string& content);
  void store_large(std::shared_ptr<PackWriter> writer, const session::ObjectId& id, std::uint64_t size_bytes);
  // Room for an entry of that length, to be written by the caller: in which file, and where.
  std::pair<std::shared_ptr<const UniqueFd>, std::uint64_t> reserve(std::uint64_t length);
  void store_again(const session::ObjectId& id);
  // The one of `others_` that holds what is not here; null: none does.
  const session::Quarantine* other_with(const session::ObjectId& id) const;
  RawObject read_borrowed(const session::ObjectId& id) const;
  RawObject read_raw(const session::ObjectId& id) const;
  std::optional<Stored> find(const session::ObjectId& id) const;
  static BlobCache::Pull pull_own(const session::ObjectId& id, const Stored& stored);
  void stream_own(const session::ObjectId& id, const Stored& stored,
                  const std::function<void(std::span<const std::byte>)>& sink) const;
  std::string next_path(const char* kind);

  std::vector<session::ObjectId> collect(const session::ObjectId& root);
  void write_packs(const std::vector<session::ObjectId>& wanted, const session::ObjectId& root);
  void release_if_referenced();
  void clear_files();

  GitRepositoryPool& pool_;                                        // self-locking
  const GitObjectStore& store_;                                    // self-locking
  const std::string directory_;                                    // constant
  const std::string gc_lock_path_;                                 // constant
  const std::uint64_t own_pack_bytes_;                             // constant
  mutable session::Synchronized<Contents> contents_;               // self-locking
  Publications publications_;                                      // self-locking
  const LfsStore lfs_store_;                                       // self-locking
  LfsHolding lfs_;                                                 // self-locking
  session::SharedSynchronized<std::vector<const session::Quarantine*>> others_;  // self-locking; theirs, not ours
  mutable BlobCache large_blobs_;                                  // self-locking
};

}  // namespace escrow::storage
