// Objects as a mount shows regular files: a blob that is a pointer of Git LFS has the size and the bytes of the object
// that it names. Everything else is as the reader below has it.
//
// Whether a blob is a pointer is told from its bytes, whatever .gitattributes says. The size comes from the pointer, so
// that an object that is not here has one, too. Thread-safe; reads no blob but those of a pointer's length. Throws as
// the reader does, and what LfsStore::open() throws.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "session/base/synchronized.h"
#include "storage/lfs/lfs_store.h"

namespace escrow::storage {

class LfsFiles final : public session::ObjectReader {
 public:
  // Both must outlive this.
  LfsFiles(const session::ObjectReader& objects, const LfsStore& store) : objects_(objects), store_(store) {}

  session::Tree read_tree(const session::ObjectId& id) const override { return objects_.read_tree(id); }
  session::Commit read_commit(const session::ObjectId& id) const override { return objects_.read_commit(id); }
  bool contains(const session::ObjectId& id) const override { return objects_.contains(id); }
  std::uint64_t blob_size(const session::ObjectId& id) const override;
  std::shared_ptr<const session::ByteSource> open_blob(const session::ObjectId& id) const override;

  // What the blob is a pointer to; nullopt: it is none. Of other blobs only the size is asked for.
  std::optional<session::LfsPointer> pointer_of(const session::ObjectId& blob) const;

 private:
  using Source = std::shared_ptr<const session::ByteSource>;
  Source opened_before(const session::ObjectId& id) const;

  const session::ObjectReader& objects_;  // self-locking, as the next
  const LfsStore& store_;
  // Leaf. Objects that were read last, so that not each range opens its file; one descriptor each.
  mutable session::Synchronized<std::deque<std::pair<session::ObjectId, Source>>> opened_;
};

}  // namespace escrow::storage
