// What `escrow gc` does to objects: git itself packs what is reachable into one pack, keeps what is not for as long as
// gc.pruneExpire says (a cruft pack), and drops the rest.
//
// Nobody waits for it. What sessions have published is in packs with .keep files, which git leaves alone, and what they
// borrowed is linked; what a push that is under way brings, or relies on, is newer than the push, and stays. Derived
// files (commit-graph, multi-pack-index, bitmaps) that were there are there again afterwards. Throws
// Error{damaged_repository} with git's own words, and has then removed nothing that is needed; Error{unavailable} when
// git is not installed. Sources: git-gc(1), git-repack(1), git-prune(1), builtin/gc.c.
#pragma once

#include <string>

#include "storage/git/git_program.h"
#include "storage/repository/repository.h"

namespace escrow::storage {

GcReport collect_objects(const std::string& git_directory, const GitProgram& git);

}  // namespace escrow::storage
