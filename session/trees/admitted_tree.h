// A tree that somebody else has written, as a session could have made it from a base: what is left out of the session's
// commits (overlay_tree.cc) is left out of this tree, too, and stays as the base has it. Objects that the quarantine
// lacks are read from `from` and put into it, so that each has the id that its bytes have.
//
// Stateless; for one thread. Throws what the readers throw, Error{input_output} for an object whose bytes are not those
// of its id, Error{name_too_long} for trees that are nested too deep, and Error{file_too_large} for too many entries.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "session/base/path_pattern.h"
#include "session/base/repo_path.h"
#include "session/trees/ignore_files.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {

struct AdmittedBy {
  PathPatterns excludes{};
  // What the session shows of something else there: it cannot change what the repository has.
  std::vector<RepoPath> shadowed{};
  // Of the base; null: nothing is ignored.
  std::function<std::unique_ptr<IgnoreLevel>(IgnoreLevel::ReadFile read)> root_level{};
};

// Entries that are looked at are counted down from `most_entries`: trees that name one another can be endless.
TreeRoot admitted_tree(const ObjectReader& from, Quarantine& quarantine, const AdmittedBy& rules, const TreeRoot& base,
                       const ObjectId& wanted, std::size_t& most_entries);

}  // namespace escrow::session
