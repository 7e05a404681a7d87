// Paths that a session and others changed differently, as long as nobody has said which of the two counts. The
// session shows its own side, and its base is a head that has the other.
//
// Plain values, kept in the session's row of the catalog; pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "session/base/ids.h"

namespace escrow::session {

// What one side has at a path, as a git tree says it. A directory is a version, too, where the other side has a file.
struct Version {
  std::uint32_t mode = 0;  // 0: nothing is there
  ObjectId id;
  friend bool operator==(const Version&, const Version&) = default;
};

struct Unresolved {
  std::string path;            // from the repository's root
  Version base, mine, theirs;  // before both, the session's when the conflict was met, and the branch's
  friend bool operator==(const Unresolved&, const Unresolved&) = default;
};

// How one is settled.
enum class Settle {
  mine,    // the session's side stays
  theirs,  // the branch's side comes into the session
  merged,  // what is in the session now is the merge
};
const char* name_of(Settle how);
std::optional<Settle> settle_from_name(std::string_view name);

// As a list of texts, two for each path; nullopt: it was not made so.
std::vector<std::string> texts_of(const std::vector<Unresolved>& paths);
std::optional<std::vector<Unresolved>> unresolved_from(const std::vector<std::string>& texts);

// Adds `more` to `paths`, in place of those of the same name. Sorted by path.
void add_unresolved(std::vector<Unresolved>& paths, const std::vector<Unresolved>& more);
// Whether `path` or a directory above it is one of these; "" is the root.
bool is_at_or_below(std::string_view path, const std::set<std::string, std::less<>>& any);

}  // namespace escrow::session
