#include "session/transaction/session_tree.h"

#include "session/base/error.h"
#include "session/trees/attribute_files.h"
#include "session/trees/ignore_files.h"
#include "session/trees/tree_walk.h"

namespace escrow::session {

void look_at_branch(const Services& services, SessionRecord& record) {
  const std::string& branch = record.options.branch;
  if (services.times == nullptr) {
    record.base = services.references.head(branch);
    return;
  }
  const ChangeTimes::Seen seen = services.times->see(branch, services.references);
  record.base = seen.head;
  if (seen.head) record.base_time = seen.newest;
}

Overlay::Options overlay_options(const Services& services, const SessionRecord& record) {
  const ObjectReader& objects = services.objects;
  Overlay::Options options;
  if (!record.options.shows_lfs_pointers) options.files = services.files;
  options.uid = record.options.uid;
  options.gid = record.options.gid;
  options.umask = record.options.umask;
  options.base_time = {record.created.seconds, 0};
  if (!record.base) return options;
  const Commit commit = objects.read_commit(*record.base);
  options.base_time = record.base_time.value_or(Timestamp{commit.committer.time_s, 0});
  if (services.times != nullptr && record.base_time) {
    options.times = services.times->as_of(record.options.branch, *record.base_time);
    options.base_path = record.options.prefix.text();
  }
  const std::optional<TreeEntry> entry =
      entry_at(objects, without_empty(objects, commit.tree), record.options.prefix);
  if (entry && entry->mode != GitMode::tree)
    throw Error(Errc::not_a_directory, "cannot open a session below " + quote_path(record.options.prefix.text()) +
                                           ": it is not a directory on branch '" + record.options.branch +
                                           "'; choose a directory, or a path that does not exist yet");
  options.base_tree = tree_of(entry);
  return options;
}

SessionResult session_result(Overlay& overlay, const SessionRecord& record, const BranchRule& rule,
                             Quarantine& quarantine, std::vector<Omission>& omitted) {
  const RepoPath& prefix = record.options.prefix;
  SessionResult result;
  result.base = record.base;
  result.prefix = prefix;
  result.base_tree = tree_of_commit(quarantine, record.base);
  std::optional<IgnoringAbove> ignoring;
  if (rule.ignore.is_on && !record.options.include_ignored)
    ignoring.emplace(quarantine, result.base_tree, prefix, rule.ignore);
  AttributesAbove attributes(quarantine, result.base_tree, prefix, rule.attributes_file);
  BuiltTree built =
      overlay.build_tree(quarantine, record.options.excludes, ignoring ? &*ignoring : nullptr, &attributes);
  omitted = std::move(built.omitted);
  result.tree = graft_tree(quarantine, result.base_tree, prefix, built.tree);
  return result;
}

}  // namespace escrow::session
