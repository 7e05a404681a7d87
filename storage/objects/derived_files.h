// What git derives from packs, and what must not outlive one: the multi-pack-index, which names packs, and the
// commit-graph, which names commits. (A pack's bitmap goes with the pack.)
//
// Functions; thread-safe. Nothing is made here: git does, in `escrow gc` and by itself. What cannot be read counts as
// naming everything. Source: gitformat-pack(5), gitformat-commit-graph(5), gitformat-chunk(5).
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "storage/objects/pack_reader.h"

namespace escrow::storage {

// The names ("pack-1234") of the packs in <objects>/pack/multi-pack-index; empty: there is none. Throws
// Error{damaged_repository} when it cannot be read.
std::set<std::string> packs_in_multi_pack_index(const std::string& objects);

// Removes those that name one of these packs, or a commit in one, which are about to go.
void remove_derived_files(const std::string& objects,
                          const std::vector<std::shared_ptr<const PackFile>>& packs) noexcept;

}  // namespace escrow::storage
