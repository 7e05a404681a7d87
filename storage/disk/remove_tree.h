// Removing directories with all that is in them. Nothing is given up early: what cannot be removed stays, everything
// else goes, and then one Error names the first path that stayed, and why. Symbolic links are not followed. Functions;
// thread-safe, also several on one tree: what another removed first is gone, and no error.
// (std::filesystem::remove_all() forgets an error as soon as it succeeds at something else.)
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace escrow::storage {

// `path` and what is below it, or the one file that it is. Returns whether there was something.
bool remove_tree(const std::string& path);

// What is in the directory, but for entries of these names. A directory that is not there is empty. Returns whether
// there was something.
bool remove_inside(const std::string& directory, const std::vector<std::string_view>& but_for);

}  // namespace escrow::storage
