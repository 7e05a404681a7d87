// The index file of a work tree that began as a tree of the repository: git compares with it what stat(2) says of each
// file, and reads no file of which that is the same.
//
// Version 2, with the cache of trees, which spares `git status` and `git commit` from reading the trees of HEAD. What
// git refuses to have in a tree is left out. Reads each tree, and looks at each file.
//
// Git takes a file for unchanged when size, inode, owner and the seconds of both times are the recorded ones, unless
// its second is that of the index file or later: then it reads the file ("racy git" in gitformat-index(5)). A file that
// may differ already is recorded as one that nobody has looked at: git reads it.
//
// Thread-safe. Throws as ObjectReader and as `shown`. Source: gitformat-index(5); read-cache.c and cache-tree.c of git
// 2.39.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "session/interfaces/file_system.h"
#include "session/interfaces/object_store.h"

namespace escrow::storage {

struct WorkTree {
  std::optional<session::ObjectId> tree;  // nullopt: it was empty
  // As lstat(2) shows it: the directory that has the name of `entry` in `directory` (kRootNode: the work tree itself),
  // or the file or link, if it has the contents of `entry`. nullopt: there is no such thing, or it may differ.
  std::function<std::optional<session::Attributes>(session::NodeId directory, const session::TreeEntry& entry)> shown;
  bool has_lfs_files = false;  // whether files may be shown with other bytes than their blobs have (Git LFS)
};

struct WorkTreeIndex {
  std::string bytes;
  // Whether some file of the second `written`, or later, is shown with other bytes than its blob has: git, which would
  // read it, takes it for changed unless it has the filter.
  bool is_too_early = false;
};

// `written`: the time that the index file will have.
WorkTreeIndex work_tree_index(const session::ObjectReader& objects, const WorkTree& work_tree,
                              session::Timestamp written);

}  // namespace escrow::storage
