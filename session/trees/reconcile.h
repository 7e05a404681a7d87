// Three-way reconciliation by path, with tree ids as short-cuts: the table of the design, section 5. Pure but for
// reading and writing trees; no state. A file that both sides changed is a conflict, unless texts are to be merged and
// git can merge this one line by line.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "session/interfaces/object_store.h"

namespace escrow::session {

// What one side did to a path.
enum class Did { nothing, added, modified, deleted, type_changed };
const char* name_of(Did did);

// What became of an entry; a change of the executable bit is a modification.
Did what_was_done(const std::optional<TreeEntry>& before, const std::optional<TreeEntry>& after);

// How a session met a path that others have changed.
enum class Met {
  changed,        // changed it, too
  read,           // read it, or looked at its attributes
  listed,         // listed the directory that it is in
  absent,         // looked for it, and found nothing
  read_below,     // read more than could be told apart, in the directory that it is in or above
};
const char* name_of(Met met);

struct Conflict {
  std::string path;
  Did ours;    // the session
  Did theirs;  // what others committed meanwhile
  Met met = Met::changed;
};

struct Conflicts {
  std::vector<Conflict> paths;  // sorted; never empty
};

enum class MergeFiles { by_path, by_line };

// `base`, `ours` and `theirs` are trees; nullopt is the empty tree. The merged tree is written to `writer`; nullopt
// when nothing remains. Cost grows with the trees that differ and with the conflicts; each three trees are merged once.
// Throws Error{result_too_large} above the bounds of different_trees.h, and above these of the list of conflicts.
inline constexpr std::size_t kMostConflicts = 1'000'000;
inline constexpr std::size_t kMostConflictPath_bytes = std::size_t{256} << 20;
std::variant<std::optional<ObjectId>, Conflicts> reconcile(Quarantine& writer, const std::optional<ObjectId>& base,
                                                           const std::optional<ObjectId>& ours,
                                                           const std::optional<ObjectId>& theirs,
                                                           MergeFiles files = MergeFiles::by_path);

// The same, but conflicting paths are taken as `ours` has them: how a session takes in what others committed.
struct MergeKeepingOurs {
  std::optional<ObjectId> tree;
  std::vector<Conflict> conflicts;  // sorted; may be empty
};
MergeKeepingOurs merge_keeping_ours(Quarantine& writer, const std::optional<ObjectId>& base,
                                    const std::optional<ObjectId>& ours, const std::optional<ObjectId>& theirs);

}  // namespace escrow::session
