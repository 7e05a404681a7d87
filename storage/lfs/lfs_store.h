// The objects of Git LFS that a repository has: plain files in git-lfs's own layout, <gitdir>/lfs/objects/aa/bb/OID, or
// below `lfs.storage` of the repository's configuration.
//
// They are read in place, by range, and never held in memory. Their bytes are not hashed as they are read; `escrow
// verify` does that. Nothing is ever removed here: git-lfs-prune(1) is the user's. Thread-safe. Sources:
// docs/man/git-lfs-config.adoc and fs/fs.go of git-lfs 3.3.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "session/base/synchronized.h"
#include "session/interfaces/object_store.h"
#include "session/trees/lfs_pointer.h"

namespace escrow::storage {

class LfsStore {
 public:
  // `is_here` is false of a repository in object storage, whose objects of Git LFS are not on this machine.
  LfsStore(std::string git_directory, bool is_here) : git_directory_(std::move(git_directory)), is_here_(is_here) {}

  const std::string& git_directory() const { return git_directory_; }
  // Where objects lie, absolute.
  std::string directory() const;
  std::string path_of(const session::LfsPointer& pointer) const;
  // Whether it is there, with the size that the pointer says.
  bool has(const session::LfsPointer& pointer) const;
  // Throws Error{input_output} with a sentence that names the object, where it is not there or has another size.
  std::shared_ptr<const session::ByteSource> open(const session::LfsPointer& pointer) const;
  // Throws Error{not_supported} of a repository in object storage.
  void require_here() const;
  // The fault of the object, in its size or its bytes; nullopt: none. Reads all of it.
  std::optional<std::string> fault_of(const session::LfsPointer& pointer) const;

 private:
  const std::string git_directory_;  // constant
  const bool is_here_;               // constant
  mutable session::Synchronized<std::string> directory_;  // leaf; empty until it was asked for
};

}  // namespace escrow::storage
