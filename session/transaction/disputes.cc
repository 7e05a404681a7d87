#include "session/transaction/disputes.h"

#include <algorithm>
#include <functional>
#include <set>

#include "session/base/error.h"

namespace escrow::session {
namespace {

constexpr std::size_t kNamedPaths = 5;

using Names = std::set<std::string, std::less<>>;

Names names_of(const std::vector<Unresolved>& paths) {
  Names names;
  for (const Unresolved& one : paths) names.insert(one.path);
  return names;
}

Version version_at(const ObjectReader& objects, const TreeRoot& tree, const std::string& path) {
  const std::optional<TreeEntry> entry = entry_at(objects, tree, RepoPath::parse(path, "path"));
  return entry ? Version{static_cast<std::uint32_t>(entry->mode), entry->id} : Version{};
}

std::optional<TreeEntry> entry_of(const Version& version) {
  if (version.mode == 0) return std::nullopt;
  return TreeEntry{{}, static_cast<GitMode>(version.mode), version.id};
}

}  // namespace

std::vector<Unresolved> Disputes::all() const {
  std::vector<Unresolved> paths = known;
  add_unresolved(paths, met_now);
  return paths;
}

std::vector<Unresolved> Disputes::chosen(const std::vector<RepoPath>& paths, const SessionId& session) const {
  const std::vector<Unresolved> from = all();
  Names wanted;
  for (const RepoPath& path : paths) {
    const auto is_meant = [&](const Unresolved& one) { return path.contains(RepoPath::parse(one.path, "path")); };
    if (std::ranges::none_of(from, is_meant))
      throw Error(Errc::not_found, "cannot resolve " + quote_path(path.text()) + " in session " + session.text() +
                                       ": nothing conflicts there; `escrow resolve " + session.text() +
                                       "` lists what does");
    wanted.insert(path.text());
  }
  std::vector<Unresolved> result;
  for (const Unresolved& one : from)
    if (is_at_or_below(one.path, wanted)) result.push_back(one);
  return result;
}

bool Disputes::has_met_now(const std::vector<Unresolved>& paths) const {
  const Names names = names_of(paths);
  return std::ranges::any_of(met_now, [&](const Unresolved& one) { return names.contains(one.path); });
}

std::vector<Unresolved> versions_of(const ObjectReader& objects, const std::vector<Conflict>& conflicts,
                                    const SessionResult& now, const TreeRoot& theirs) {
  std::vector<Unresolved> paths;
  for (const Conflict& one : conflicts)
    paths.push_back({one.path, version_at(objects, now.base_tree, one.path), version_at(objects, now.tree, one.path),
                     version_at(objects, theirs, one.path)});
  return paths;
}

Conflicts conflicts_of(const std::vector<Unresolved>& paths) {
  Conflicts conflicts;
  for (const Unresolved& one : paths) {
    const std::optional<TreeEntry> base = entry_of(one.base);
    conflicts.paths.push_back(
        {one.path, what_was_done(base, entry_of(one.mine)), what_was_done(base, entry_of(one.theirs))});
  }
  return conflicts;
}

bool are_below(const RepoPath& prefix, const std::vector<Conflict>& conflicts) {
  return std::ranges::all_of(conflicts, [&](const Conflict& one) {
    const RepoPath path = RepoPath::parse(one.path, "path");
    return prefix.contains(path) && path.text() != prefix.text();
  });
}

std::vector<PathChange> changes_to(const ObjectReader& objects, const TreeRoot& base,
                                   const std::vector<Unresolved>& paths, const RepoPath& prefix) {
  std::vector<PathChange> changes;
  for (const Unresolved& one : paths) {
    std::string below = one.path.substr(prefix.text().size());
    if (below.starts_with('/')) below.erase(0, 1);
    std::optional<TreeEntry> entry = entry_at(objects, base, RepoPath::parse(one.path, "path"));
    const Did did = entry ? Did::modified : Did::deleted;
    changes.push_back({std::move(below), did, std::nullopt, std::move(entry)});
  }
  return changes;
}

bool take_settled(std::vector<Unresolved>& paths, const std::vector<RepoPath>& settled) {
  Names names;
  for (const RepoPath& path : settled) names.insert(path.text());
  return std::erase_if(paths, [&](const Unresolved& one) { return is_at_or_below(one.path, names); }) != 0;
}

void refuse_changed_reads(const ObjectReader& objects, const SessionRecord& record, const SessionResult& now,
                          const TreeRoot& head_tree) {
  const std::vector<Conflict> changed =
      changed_reads(objects, *now.reads, record.options.prefix, now.base_tree, head_tree);
  if (changed.empty()) return;
  std::string named;
  for (std::size_t at = 0; at < std::min(changed.size(), kNamedPaths); ++at)
    named += (at == 0 ? "" : ", ") + quote_path(changed[at].path);
  if (changed.size() > kNamedPaths) named += " and " + std::to_string(changed.size() - kNamedPaths) + " more";
  throw Error(Errc::wrong_state, "cannot bring session " + record.id.text() + " onto the branch's head: it is "
                                     "serializable, and others changed what it had read: " + named +
                                     "; roll it back and do its work again, over the head");
}

void refuse_unresolved(const SessionRecord& record) {
  std::string named;
  const std::vector<Unresolved>& paths = record.unresolved;
  for (std::size_t at = 0; at < std::min(paths.size(), kNamedPaths); ++at)
    named += (at == 0 ? "" : ", ") + quote_path(paths[at].path);
  if (paths.size() > kNamedPaths) named += " and " + std::to_string(paths.size() - kNamedPaths) + " more";
  throw Error(Errc::wrong_state, "cannot commit session " + record.id.text() + ": both it and others changed " + named +
                                     "; settle them first: `escrow resolve " + record.id.text() +
                                     " PATH... --mine|--theirs|--merged`");
}

void refuse_lost(const SessionRecord& record, const char* what, const std::vector<std::string>& paths) {
  constexpr std::size_t kNamedFiles = 5;
  std::string named;
  for (std::size_t at = 0; at < std::min(paths.size(), kNamedFiles); ++at)
    named += (at == 0 ? "" : ", ") + quote_path(paths[at]);
  if (paths.size() > kNamedFiles) named += " and " + std::to_string(paths.size() - kNamedFiles) + " more";
  throw Error(Errc::data_lost,
              std::string("cannot ") + what + " session " + record.id.text() +
                  ": what programs stored in " + named +
                  " could not be written back when it was to be (the disk was full, or a limit was reached) and is "
                  "lost; write the file again, remove or discard it, then " + what + " again");
}

}  // namespace escrow::session
