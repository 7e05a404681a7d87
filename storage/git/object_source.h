// Where objects come from that a repository knows of but does not hold yet: a bucket, of which it is the cache.
//
// libgit2 asks a source last, and so does everything that asks libgit2 last (git_object_store.h). An object that was
// brought lies in an object directory that the repository reads (objects/info/alternates), and may vanish from there
// again. Thread-safe; an implementation holds no lock over the network that an answer from memory needs.
#pragma once

#include "session/base/ids.h"
#include "storage/git/git_handle.h"

namespace escrow::storage {

class ObjectSource {
 public:
  virtual ~ObjectSource() = default;
  // By what is known of the source: nothing is asked.
  virtual bool has(const session::ObjectId& id) const = 0;
  // After that the object can be read locally. false: the source has none. Waits, in bounded time. Throws
  // Error{input_output} with a sentence for the user.
  virtual bool bring(const session::ObjectId& id) = 0;
};

// `source` must outlive the handle.
void add_object_source(git_odb* odb, ObjectSource& source);

}  // namespace escrow::storage
