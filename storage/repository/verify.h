// Reads and hashes every object that the repository's references reach. Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "storage/lfs/lfs_files.h"
#include "storage/objects/git_object_store.h"
#include "storage/repository/repository.h"

namespace escrow::storage {

// `repository` is for its references. A fault is an entry of the answer, never an exception; behind a damaged reference
// the others are checked all the same.
std::vector<Problem> verify_objects(git_repository* repository, const GitObjectStore& objects,
                                    const std::function<void(std::uint64_t, std::uint64_t)>& progress);

// The same of every object of Git LFS that the trees of these heads name.
std::vector<Problem> verify_lfs(const std::vector<std::pair<std::string, session::ObjectId>>& branches,
                                const LfsFiles& files, const LfsStore& store);

}  // namespace escrow::storage
