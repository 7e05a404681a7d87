// A session's own new objects of Git LFS, in its directory, until they are published with the pointers that name them.
//
// <directory>/OID is the object, written and hashed in one pass; of one that the repository has already it is a hard
// link, so that it is there when the session is committed, whatever becomes of the other. Publishing makes an object
// durable and links it to its name in the repository. Whatever becomes of the session then, the object stays: a
// git-lfs that found it there uploads nothing. git-lfs-prune(1) removes what no commit names. Thread-safe; publish()
// from one thread, with no put() under way. Throws Error{no_space} and the like. Source: link(2).
#pragma once

#include <atomic>
#include <string>
#include <unordered_map>
#include <vector>

#include "session/base/ids.h"
#include "session/base/synchronized.h"
#include "storage/lfs/lfs_store.h"

namespace escrow::storage {

class LfsHolding {
 public:
  // `directory` need not exist. `store` must outlive this.
  LfsHolding(const LfsStore& store, std::string directory);

  // Streams the bytes, once from front to back, and keeps them. Throws Error{not_supported} of a repository in object
  // storage.
  session::LfsPointer put(const session::ByteSource& source);
  // `pointer`, which put() has returned, is this blob.
  void hold(const session::ObjectId& blob, const session::LfsPointer& pointer);
  // How many bytes publish() may have to bring to the disk.
  std::uint64_t held_bytes() const;

  // The objects of those of the blobs that are held are the repository's and on disk when it returns. Idempotent.
  void publish(const std::vector<session::ObjectId>& blobs);
  // Forgets what is held; who removes the directory is the caller.
  void forget() { held_.lock()->clear(); }

 private:
  std::string own_path(const session::LfsPointer& pointer) const { return directory_ + "/" + pointer.oid; }
  bool has_bytes_of(const session::LfsPointer& pointer, const std::string& own) const;
  session::LfsPointer write(const session::ByteSource& source, const std::string& path) const;
  void publish(const session::LfsPointer& pointer);
  void publish_copy(const std::string& own, const session::LfsPointer& pointer, const std::string& path);

  const LfsStore& store_;         // self-locking
  const std::string directory_;   // constant
  std::atomic<std::uint64_t> next_file_ = 1;
  mutable session::Synchronized<std::unordered_map<session::ObjectId, session::LfsPointer>> held_;  // leaf
};

}  // namespace escrow::storage
