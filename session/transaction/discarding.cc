#include "session/transaction/discarding.h"

#include <map>
#include <optional>
#include <string>

#include "session/base/error.h"
#include "session/transaction/apply_changes.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {
std::vector<PathChange> changes_back(Overlay& overlay, const ObjectReader& objects, const SessionRecord& row,
                                     const std::vector<RepoPath>& paths) {
  const RepoPath& prefix = row.options.prefix;
  const TreeRoot base = tree_of_commit(objects, row.base);
  std::vector<PathChange> back;
  for (const RepoPath& path : paths) {
    if (!prefix.contains(path))
      throw Error(Errc::not_found, "cannot discard " + quote_path(path.text()) + ": the session works below " +
                                       quote_path(prefix.text()) + " only; give a path as escrow diff shows it");
    std::string below = path.text().substr(prefix.text().size());
    if (below.starts_with('/')) below.erase(0, 1);
    const std::optional<TreeEntry> entry = entry_at(objects, base, path);
    if (!below.empty()) {
      if (!entry && !is_in(overlay, below))
        throw Error(Errc::not_found, "cannot discard " + quote_path(path.text()) +
                                         ": neither the session nor its base has it; see escrow diff");
      back.push_back({below, Did::modified, std::nullopt, entry});
      continue;
    }
    std::map<std::string, std::optional<TreeEntry>> all;
    for (const std::string& name : names_in(overlay, kRootNode)) all[name];
    for (TreeEntry& one : read_tree_or_empty(objects, tree_of(entry))) all[one.name] = one;
    for (const auto& [name, was] : all) back.push_back({name, Did::modified, std::nullopt, was});
  }
  return back;
}

}  // namespace escrow::session
