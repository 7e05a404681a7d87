// A session's own new objects of Git LFS, in its directory, until they are published with the pointers that name them.
//
// <directory>/OID is the object, written and hashed in one pass; of one that the repository has already it is a hard
// link, so that it is there when the session is committed, whatever becomes of the other. Publishing makes an object
// durable, notes it in <list>, durable before the object gets its name, and links it to its name in the repository.
// take_back() removes what it published, whose pointers nobody came to need. An object that was
// there before is not noted. Thread-safe; publish() and later from one thread, with no put()
// under way. Throws Error{no_space} and the like. Source: link(2).
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "session/base/synchronized.h"
#include "storage/lfs/lfs_store.h"

namespace escrow::storage {

class LfsHolding {
 public:
  // `directory` need not exist. `store` must outlive this.
  LfsHolding(const LfsStore& store, std::string directory, std::string list);

  // Streams the bytes, once from front to back, and keeps them. Throws Error{not_supported} of a repository in object
  // storage.
  session::LfsPointer put(const session::ByteSource& source);
  // `pointer`, which put() has returned, is this blob.
  void hold(const session::ObjectId& blob, const session::LfsPointer& pointer);
  // How many bytes publish() may have to bring to the disk.
  std::uint64_t held_bytes() const;

  // The objects of those of the blobs that are held are the repository's and on disk when it returns. Idempotent.
  void publish(const std::vector<session::ObjectId>& blobs);
  // Whether something was published and neither released nor taken back.
  bool has_published() const;
  // Published objects stay.
  void release();
  // Removes what it published whose pointer `is_kept` says that the repository does not have.
  void take_back(const std::function<bool(const session::ObjectId& blob)>& is_kept);
  // Forgets what is held; who removes the directory is the caller.
  void forget() { held_.lock()->clear(); }

 private:
  struct Published {
    session::LfsPointer pointer;
    session::ObjectId blob;
  };
  std::string own_path(const session::LfsPointer& pointer) const { return directory_ + "/" + pointer.oid; }
  bool has_bytes_of(const session::LfsPointer& pointer, const std::string& own) const;
  session::LfsPointer write(const session::ByteSource& source, const std::string& path) const;
  void publish(const session::ObjectId& blob, const session::LfsPointer& pointer);
  void publish_copy(const std::string& own, const session::ObjectId& blob, const session::LfsPointer& pointer,
                    const std::string& path);
  void note(const Published& published);
  std::vector<Published> noted() const;

  const LfsStore& store_;         // self-locking
  const std::string directory_;   // constant
  const std::string list_;        // constant
  std::atomic<std::uint64_t> next_file_ = 1;
  mutable session::Synchronized<std::unordered_map<session::ObjectId, session::LfsPointer>> held_;  // leaf
};

}  // namespace escrow::storage
