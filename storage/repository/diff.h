// Differences between two trees as text, through libgit2. Functions; thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "storage/objects/quarantine.h"
#include "storage/repository/repository.h"

namespace escrow::storage {

// See Repository::write_diff. `quarantine` may be null. Blobs over kLargeBlobBytes are shown as binary, unread.
void write_tree_diff(const std::string& git_directory, const std::optional<session::ObjectId>& before,
                     const std::optional<session::ObjectId>& after, DiffFormat format,
                     const GitQuarantine* quarantine, const std::string& path,
                     const std::function<void(std::string_view)>& out);

}  // namespace escrow::storage
