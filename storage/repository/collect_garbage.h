// What `escrow gc` does to objects: git itself packs what is reachable into one pack, keeps what is not for as long as
// gc.pruneExpire says (a cruft pack), and drops the rest.
//
// Nobody waits for it. What sessions have published is in packs with .keep files, which git leaves alone, and what they
// borrowed is linked. What a push that is under way, or the git inside an open session, writes stays, also where git
// found the object here and only set its time anew. What that git takes over without writing it, by git-fetch(1) say,
// is as old as it was. Derived files (commit-graph, multi-pack-index, bitmaps) that were there are there again
// afterwards. Throws Error{damaged_repository} with git's own words, and has then removed nothing that is needed;
// Error{unavailable} when git is not installed. Sources: git-gc(1), git-repack(1), git-prune(1), builtin/gc.c.
#pragma once

#include <ctime>
#include <optional>
#include <string>

#include "storage/git/git_program.h"
#include "storage/repository/repository.h"

namespace escrow::storage {

// `now`, in seconds since 1970, is from before the sessions were listed, and `oldest` the oldest of them: what was
// written since then stays whatever gc.pruneExpire says.
GcReport collect_objects(const std::string& git_directory, const GitProgram& git, std::time_t now,
                         const std::optional<GcHolder>& oldest);

}  // namespace escrow::storage
