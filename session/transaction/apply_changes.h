// Entries of git trees into an overlay that is in use: how discard, update and resume change what a session shows.
// Stateless; the caller keeps everybody else from changing the overlay. Throws what the overlay throws.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "session/overlay/overlay.h"
#include "session/trees/tree_changes.h"

namespace escrow::session {

// nullopt: there is nothing of that name. "" is the root.
std::optional<NodeId> node_at(FileSystem& files, std::string_view path);
// A file whose content is lost is one, too.
bool is_in(FileSystem& files, const std::string& path);
// But for "." and "..".
std::vector<std::string> names_in(FileSystem& files, NodeId directory);

// Makes each path what the change has after it. Git has no empty directories: the last file that is deleted takes its
// directory with it; one that still holds something of the session's stays. `is_stale` gets what the kernel may have
// cached, as soon as it has changed, also when a later change throws.
void apply_changes(Overlay& overlay, const std::vector<PathChange>& changes,
                   const std::function<void(std::vector<Overlay::Stale>)>& is_stale);

}  // namespace escrow::session
