// Differences between two trees as text, through libgit2. Functions; thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/objects/quarantine.h"
#include "storage/repository/repository.h"

namespace escrow::storage {

// See Repository::write_diff. `paths`: the files to compare, which are all that differ, or some of these; never empty:
// libgit2 would then go through all files of both trees. `quarantine` may be null. Blobs over kLargeBlobBytes are shown
// as binary, unread.
void write_tree_diff(const std::string& git_directory, const std::optional<session::ObjectId>& before,
                     const std::optional<session::ObjectId>& after, DiffFormat format,
                     const GitQuarantine* quarantine, const std::vector<std::string>& paths,
                     const std::function<void(std::string_view)>& out);

}  // namespace escrow::storage
