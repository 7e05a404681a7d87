// Files of a commit that git would not store as they are: their attributes name a filter, or an encoding
// (gitattributes(5): filter, working-tree-encoding), and Escrow stores bytes. A secret that git-crypt would encrypt is
// one.
//
// Whoever wrote the attribute meant it, so that it counts whether git has such a filter configured or not. Git LFS does
// not count, as Escrow applies it. Functions, thread-safe; they throw what the reader throws. Cost: the changes, and
// the files of attributes in the directories above them.
#pragma once

#include <string>
#include <vector>

#include "session/interfaces/object_store.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {

struct UnfilteredChange {
  std::string path;
  std::string attribute;  // "filter=git-crypt"
};

// Of the regular files of `after` whose content `before` has nowhere among what differs, by path. The attributes are
// those of `after`, and `info_attributes`, the content of info/attributes. An empty file has nothing to convert.
std::vector<UnfilteredChange> unfiltered_changes(const ObjectReader& objects, const TreeRoot& before,
                                                 const TreeRoot& after, const std::string& info_attributes);
// "a.key (filter=git-crypt), b.key (filter=git-crypt) and 7 more".
std::string named(const std::vector<UnfilteredChange>& changes);

}  // namespace escrow::session
