// Makes one pack of the many small ones that commits leave.
//
// Entries are copied as they lie, deltas too, checked by their CRC, whatever is reachable; memory does not grow with
// the objects' size. Nobody waits for it: the old packs go when the new one is on disk. Packs with a .keep file are
// left alone, and those that git made to last: with a bitmap, in the multi-pack-index, of what is unreachable (cruft).
// Not thread-safe; one process at a time. Throws Error{damaged_repository}, and has then removed nothing.
#pragma once

#include <string>

#include "storage/objects/git_object_store.h"

namespace escrow::storage {

// Does nothing unless there are many. `scratch` is a directory on the repository's file system, for files whose names
// begin with tmp_fold. Cost: the bytes of the small packs. Returns how many packs were folded.
std::size_t fold_small_packs(const GitObjectStore& objects, const std::string& scratch);
// Whether that may have something to do: lists one directory.
bool has_many_packs(const GitObjectStore& objects);

}  // namespace escrow::storage
