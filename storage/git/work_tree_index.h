// The index file of a work tree that is exactly a tree of the repository: git compares sizes and times with it, and
// reads no file.
//
// Version 2, with the cache of trees, which spares `git status` and `git commit` from reading the trees of HEAD. What a
// file system cannot promise to git in advance (inode, owner, change time) is zero, as core.checkStat=minimal has it.
// What git refuses to have in a tree is left out. Reads each tree, and of each blob its size.
//
// Thread-safe. Throws as ObjectReader. Source: gitformat-index(5); read-cache.c and cache-tree.c of git 2.39.
#pragma once

#include <optional>
#include <string>

#include "session/interfaces/change_times.h"
#include "session/interfaces/object_store.h"

namespace escrow::storage {

// nullopt: the work tree is empty. `below`: the times of what is in it, with `times`, which may be null where none is
// newer.
std::string work_tree_index(const session::ObjectReader& objects, const std::optional<session::ObjectId>& tree,
                            const session::TimesBelow& below, const session::BaseTimes* times);

}  // namespace escrow::storage
