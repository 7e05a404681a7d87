// The index file of a work tree that was exactly a tree of the repository: git compares sizes and times with it, and
// reads no file.
//
// Version 2, with the cache of trees, which spares `git status` and `git commit` from reading the trees of HEAD. What a
// file system cannot promise to git in advance (inode, owner, change time) is zero, as core.checkStat=minimal has it.
// What git refuses to have in a tree is left out. Reads each tree, and of each blob its size.
//
// Git takes a file of the recorded size and second for unchanged, unless the second is that of the index file or later:
// then it reads the file ("racy git" in gitformat-index(5)). A file that differs already may have both, so what is
// named as changed is recorded without a size: git reads it.
//
// Thread-safe. Throws as ObjectReader. Source: gitformat-index(5); read-cache.c and cache-tree.c of git 2.39.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "session/interfaces/change_times.h"
#include "session/interfaces/object_store.h"

namespace escrow::storage {

struct WorkTree {
  std::optional<session::ObjectId> tree;      // nullopt: it was empty
  session::TimesBelow times;                  // of what is in it
  const session::BaseTimes* newer = nullptr;  // for `times`; null where none is newer
  // Who has the sizes of regular files as the work tree shows them; null: the objects.
  const session::ObjectReader* files = nullptr;
  std::vector<std::string> changed = {};      // sorted paths that may differ from the tree
};

struct WorkTreeIndex {
  std::string bytes;
  // Whether some file of the second `written`, or later, is shown with other bytes than its blob has (Git LFS): git,
  // which would read it, takes it for changed unless it has the filter.
  bool is_too_early = false;
};

// `written`: the time that the index file will have.
WorkTreeIndex work_tree_index(const session::ObjectReader& objects, const WorkTree& work_tree,
                              session::Timestamp written);

}  // namespace escrow::storage
