// Makes one pack of many: of everything reachable (`escrow gc`), or of the small packs that commits leave (fold).
//
// gc packs everything reachable and drops the rest. Not thread-safe; the caller holds the gc lock alone.
//
// Entries are copied as they lie, deltas too, checked by their CRC; memory does not grow with the objects' size. Only
// files that were there before the references were read are removed, and the references are read again before that:
// what a push brings meanwhile stays. Packs with a .keep file are left alone. Throws Error{damaged_repository}, and
// has then removed nothing.
#pragma once

#include <string>
#include <vector>

#include "storage/git_object_store.h"
#include "storage/repository.h"

namespace escrow::storage {

// `more_roots`: what sessions need beyond references. `scratch` is a directory on the repository's file system.
GcReport consolidate(git_repository* repository, const GitObjectStore& objects, const std::vector<session::ObjectId>&
                     more_roots, const std::string& scratch);

// When there are many packs that are small, as each commit leaves one, makes one of them: they are copied as they lie,
// whatever is reachable, and removed once the new one is on disk. Cost: the bytes of the small packs. Returns how many
// packs were folded.
std::size_t fold_small_packs(git_repository* repository, const GitObjectStore& objects, const std::string& scratch);
// Whether that may have something to do: lists one directory.
bool has_many_packs(const GitObjectStore& objects);

}  // namespace escrow::storage
